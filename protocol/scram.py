"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides of a login, as pure functions of its messages.

    client  c1  n,[a=authzid],n=<name>,r=<nonce>[,extensions]
    server  s1  r=<nonce><server's nonce>,s=<base64 salt>,i=<iterations>
    client  c2  c=<base64 of "n,[a=authzid],">,r=<both nonces>[,extensions],p=<base64 proof>
    server  s2  v=<base64 signature>, by which the server proves that it knows the credential

Source: RFC 5802, RFC 7677; docs/spec/security.md §2 (S29 to S31). There is no channel binding, and
names are not normalised (SASLprep), as in Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

ITERATIONS_MIN: Final = 4096
"""Fewer make passwords too cheap to guess (RFC 7677)."""
ITERATIONS_MAX: Final = 16_384
"""What Kafka lets a user be given."""
CLIENT_ITERATIONS_MAX: Final = 1 << 20
"""A server that asks for more than this only wants the client's time."""
NONCE_BYTES: Final = 18
"""Random bytes of a nonce: at least 128 bits."""

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*)=([^\0,]+)")
_ESCAPE: Final = re.compile(r"=(2C|3D)?")
_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramError(ValueError):
    """A message that ends the login; the text is for the log of whoever received it."""


class ScramMechanism(NamedTuple):
    """One of the two mechanisms."""

    name: str
    number: int
    """How KIP-554 calls it in requests."""
    digest: str
    digest_bytes: int


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
MECHANISMS: Final[Mapping[str, ScramMechanism]] = {one.name: one for one in (SHA_256, SHA_512)}
BY_NUMBER: Final[Mapping[int, ScramMechanism]] = {one.number: one for one in (SHA_256, SHA_512)}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password: enough to check a proof, not enough to make one."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Never the keys: a credential ends up in tracebacks and logs."""
        return "[hidden]"


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """The slow part, some milliseconds on purpose: not for a turn of the loop."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What to keep of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.digest),
        iterations=iterations,
    )


def salt_text(seed: bytes) -> bytes:
    """A salt of the form that Kafka's tools give: 130 bits in base 36; ``seed`` is random."""
    number = int.from_bytes(seed[: _SALT_BITS // 8 + 1]) & ((1 << _SALT_BITS) - 1)
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode() or b"0"


def decoy(mechanism: ScramMechanism, secret: bytes, name: str) -> ScramCredential:
    """A credential that no proof fits, for a name that nobody has: always the same one.

    Without it the first answer of the server would tell who exists. Whoever does not know
    ``secret`` cannot tell its salt from one of a user that ``salt_text`` made.
    """
    seed = hmac.digest(secret, f"{mechanism.name}\0{name}".encode(), "sha512")
    return ScramCredential(
        salt=salt_text(seed),
        stored_key=seed[-mechanism.digest_bytes :],
        server_key=bytes(mechanism.digest_bytes),
        iterations=ITERATIONS_MIN,
    )


class ServerExchange:
    """The server's side of one login: :meth:`begin`, :meth:`challenge`, :meth:`finish`, once each.

    All raise ScramError for a message that ends the login.
    """

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.name = ""
        """Who the client says that it is, unproved until :meth:`finish` returns."""
        self.extensions: Mapping[str, str] = {}
        self._mechanism = mechanism
        self._header = b""
        self._client_nonce = b""
        self._nonce = b""
        self._bare = b""
        self._server_first = b""
        self._credentials: Sequence[ScramCredential] = ()

    def begin(self, message: bytes) -> None:
        """Read c1."""
        text = _text(message)
        flag, comma, rest = text.partition(",")
        authzid, second, bare = rest.partition(",")
        if flag != "n" or not (comma and second):
            raise ScramError("channel binding is not served")
        name, nonce, *extensions = bare.split(",") if bare.count(",") else (bare, "")
        self.name = _name(name, "n=")
        if authzid and _name(authzid, "a=") != self.name:
            raise ScramError("another authorization id than the name")
        if not nonce.startswith("r=") or _NONCE.fullmatch(nonce, 2) is None:
            raise ScramError("no nonce")
        self.extensions = _extensions(extensions)
        self._header = f"{flag},{authzid},".encode()
        self._bare = bare.encode()
        self._client_nonce = nonce[2:].encode()

    def challenge(self, credentials: Sequence[ScramCredential], nonce: bytes) -> bytes:
        """Return s1; any of the ``credentials``, which share salt and iterations, may be proved."""
        first = credentials[0]
        assert all(
            (one.salt, one.iterations) == (first.salt, first.iterations) for one in credentials
        ), "one challenge serves them all"
        assert len(nonce) >= NONCE_BYTES, "too few to be met once only"
        self._credentials = credentials
        self._nonce = self._client_nonce + base64.b64encode(nonce)
        salt = base64.b64encode(first.salt)
        self._server_first = b"r=%b,s=%b,i=%d" % (self._nonce, salt, first.iterations)
        return self._server_first

    def finish(self, message: bytes) -> bytes:
        """Read c2 and return s2: the proof was right."""
        without_proof, found, proof_text = message.rpartition(b",p=")
        binding, nonce, *extensions = _text(without_proof).split(",") + [""] * 2
        if not found:
            raise ScramError("no proof")
        if binding != "c=" + base64.b64encode(self._header).decode():
            raise ScramError("another channel binding than at first")
        # Equal, not only ending in ours: else c2 of another login could be replayed with a
        # client nonce of the thief's choice (CVE-2024-56128). librdkafka before 2.2, which
        # Debian's kcat is made with, writes its own nonce twice; no more is left open by that.
        equal = hmac.compare_digest(nonce.encode(), b"r=" + self._nonce)
        doubled = hmac.compare_digest(nonce.encode(), b"r=" + self._client_nonce + self._nonce)
        if not (equal or doubled):
            raise ScramError("another nonce")
        _extensions(extensions[:-2])
        proof = _bytes(proof_text)
        if len(proof) != self._mechanism.digest_bytes:
            raise ScramError("a proof of another length")
        transcript = b",".join((self._bare, self._server_first, without_proof))
        proved = [one for one in self._credentials if self._fits(one, transcript, proof)]
        if not proved:
            raise ScramError("wrong proof")
        signature = hmac.digest(proved[0].server_key, transcript, self._mechanism.digest)
        return b"v=" + base64.b64encode(signature)

    def _fits(self, one: ScramCredential, transcript: bytes, proof: bytes) -> bool:
        signature = hmac.digest(one.stored_key, transcript, self._mechanism.digest)
        client_key = _xor(proof, signature)
        digest = hashlib.new(self._mechanism.digest, client_key).digest()
        return hmac.compare_digest(digest, one.stored_key)


class Salting(NamedTuple):
    """What a server wants the password salted with."""

    salt: bytes
    iterations: int


class ClientExchange:
    """The client's side of one login; its methods are called once each, as they stand here."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        nonce: bytes,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """``nonce`` is random, NONCE_BYTES at least; ``extensions`` go into c1."""
        self._mechanism = mechanism
        self._nonce = base64.b64encode(nonce).decode()
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        added = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._bare = f"n={escaped},r={self._nonce}{added}"
        self._server_first = ""
        self._both_nonces = ""
        self._expected = b""

    def first(self) -> bytes:
        """Return c1."""
        return f"n,,{self._bare}".encode()

    def salting(self, message: bytes) -> Salting:
        """Read s1; raises ScramError for what no honest server sends."""
        self._server_first = _text(message)
        nonce, salt, iterations, *_ = [*self._server_first.split(","), "", "", ""]
        if not nonce.startswith("r=" + self._nonce) or len(nonce) <= len("r=" + self._nonce):
            raise ScramError("the server answers another login")
        self._both_nonces = nonce[2:]
        if not salt.startswith("s=") or not iterations.startswith("i="):
            raise ScramError("the server's challenge cannot be read")
        digits = iterations[2:]
        count = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 0
        if not ITERATIONS_MIN <= count <= CLIENT_ITERATIONS_MAX:
            raise ScramError(f"the server asks for {digits[:12]} iterations")
        if not salt[2:]:
            raise ScramError("the server sends no salt")
        return Salting(_bytes(salt[2:].encode()), count)

    def final(self, salted: bytes) -> bytes:
        """Return c2, made with the salted password."""
        digest = self._mechanism.digest
        without_proof = f"c=biws,r={self._both_nonces}"
        transcript = f"{self._bare},{self._server_first},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, transcript, digest))
        server_key = hmac.digest(salted, b"Server Key", digest)
        self._expected = b"v=" + base64.b64encode(hmac.digest(server_key, transcript, digest))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Read s2; raises ScramError where the server does not know the credential."""
        signature = message.split(b",")[0]
        if not self._expected or not hmac.compare_digest(signature, self._expected):
            raise ScramError("the server cannot prove that it knows the password")


def _xor(left: bytes, right: bytes) -> bytes:
    assert len(left) == len(right), "both are digests"
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(len(left))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None


def _bytes(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ScramError("not base64") from None


def _name(attribute: str, start: str) -> str:
    """The name in ``n=`` or ``a=``: ``=2C`` is a comma, ``=3D`` is =, any other = is wrong."""
    escaped = attribute.removeprefix(start)
    if not attribute.startswith(start) or not escaped:
        raise ScramError(f"no {start}")
    if "\0" in escaped or None in (found[1] for found in _ESCAPE.finditer(escaped)):
        raise ScramError("a name that cannot be read")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _extensions(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        one = _EXTENSION.fullmatch(word)
        # "m=" announces an extension that must be understood, and none is (RFC 5802, section 5.1).
        if one is None or one[1] == "m":
            raise ScramError("an extension that cannot be read")
        found[one[1]] = one[2]
    return found
