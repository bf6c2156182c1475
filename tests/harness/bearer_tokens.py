"""Bearer tokens as an identity provider signs them, its keys, and the file that has them."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "barnabas"
KID: Final = "first"


@cache
def rsa_key(name: str = KID) -> rsa.RSAPrivateKey:
    """One for each name."""
    assert name
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(curve: str = "P-256") -> ec.EllipticCurvePrivateKey:
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    return ec.generate_private_key(curves[curve])


def jwk(private: Any, kid: str | None = KID, **fields: Any) -> dict[str, Any]:
    """The public half as it stands in a set of keys."""
    public = private.public_key()
    made: str | dict[str, Any]
    if isinstance(public, rsa.RSAPublicKey):
        made = jwt.algorithms.RSAAlgorithm.to_jwk(public)
    else:
        made = jwt.algorithms.ECAlgorithm.to_jwk(public)
    known = json.loads(made) if isinstance(made, str) else dict(made)
    known.pop("key_ops", None)
    return {**known, **({} if kid is None else {"kid": kid}), "use": "sig", **fields}


def jwks(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": keys or [jwk(rsa_key())]}).encode()


def write_jwks(path: Path, *keys: Mapping[str, Any]) -> str:
    """The URL of a file with these keys."""
    path.write_bytes(jwks(*keys))
    return path.as_uri()


def claims(now_s: float | None = None, **changed: Any) -> dict[str, Any]:
    """Of alice, for five minutes; None takes a claim away."""
    now = int(time.time() if now_s is None else now_s)
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now,
        "exp": now + 300,
        **changed,
    }
    return {name: value for name, value in given.items() if value is not None}


def signed(
    given: Mapping[str, Any] | None = None,
    *,
    key: Any = None,
    algorithm: str = "RS256",
    kid: str | None = KID,
) -> str:
    """A token; by default a good one."""
    headers = {} if kid is None else {"kid": kid}
    body = json.dumps(claims() if given is None else given).encode()
    # Not encode(), which would refuse to sign some of what is to be refused.
    return jwt.PyJWS().encode(body, rsa_key() if key is None else key, algorithm, headers)


def unsigned(given: Mapping[str, Any] | None = None, signature: str = "") -> str:
    """``alg`` none."""
    parts = ({"alg": "none"}, claims() if given is None else given)
    return ".".join([*(_encoded(json.dumps(part).encode()) for part in parts), signature])


def confused() -> str:
    """HS256 with the public key, as PEM, for a secret: whoever has the public key can make it."""
    pem = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "HS256", "typ": "JWT", "kid": KID}
    signing = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims()))
    # PyJWT refuses to do this.
    return f"{signing}.{_encoded(hmac.digest(pem, signing.encode(), 'sha256'))}"


def bad_tokens() -> dict[str, str]:
    """Each wrong in one way: none of them lets anybody in."""
    now = int(time.time())
    return {
        "expired": signed(claims(iat=now - 600, exp=now - 300)),
        "wrong audience": signed(claims(aud="another")),
        "wrong issuer": signed(claims(iss="https://another.test")),
        "alg none": unsigned(),
        "HS256 with the public key": confused(),
        "unknown kid": signed(key=rsa_key("other"), kid="other"),
    }


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
