"""Access rules: there are none yet, and whoever asks is told so instead of being cut off.

Source: docs/spec/protocol.md §0 choice 4 and §2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_acls, delete_acls, describe_acls

from .call import Call, Handler

MESSAGE: Final = "No authorizer is configured: there are no access rules."


class AclsHandler:
    """Says no to everything about access rules."""

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.DESCRIBE_ACLS: _describe,
            ApiKey.CREATE_ACLS: _create,
            ApiKey.DELETE_ACLS: _delete,
        }


def _describe(_call: Call) -> describe_acls.DescribeAclsResponse:
    return describe_acls.DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE, resources=[]
    )


def _create(call: Call) -> create_acls.CreateAclsResponse:
    refusal = create_acls.Result(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return create_acls.CreateAclsResponse(results=[refusal] * len(call.request.creations))


def _delete(call: Call) -> delete_acls.DeleteAclsResponse:
    refusal = delete_acls.FilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE, matching_acls=[]
    )
    return delete_acls.DeleteAclsResponse(filter_results=[refusal] * len(call.request.filters))
