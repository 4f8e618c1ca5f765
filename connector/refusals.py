"""Why no broker answers: what the resolver, TLS and the login say. The client library's calls only run out of time.

Asked when a call has failed, of the network and never of guesses: where nothing is found, the error stays as it was.
Only names of settings, addresses and dates are put into errors, no value of a setting that may be a secret.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ..partitioner.errors import BrokerUnreachableError, HostUnknownError, KeyorderError, TlsError
from . import clock
from .admin_ends import end_waiting, put_aside
from .config import connection_of
from .kafka_errors import translate

# Seconds: for the client library to say what it meets, and for one answer from the network.
_LISTENED, _ANSWERED = 3.0, 1.0
#: After so many seconds somebody who waits at a terminal is told that a host has no address.
HOSTS_WITHIN = 3.0
_REFUSED_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_ALERT = re.compile(r"alert ([a-z ]+): SSL alert number (\d+)")
_AT = re.compile(r"ssl://(.+?):(\d+)/")
# TLS alerts: what a server says of a client's certificate (RFC 8446, section 6.2); these where there is none.
_OF_CERTIFICATES, _OF_NONE = {*range(42, 50)}, {40, 41, 42, 116}
# OpenSSL's reasons why a certificate is not accepted.
_NOT_YET, _EXPIRED, _UNKNOWN_CA, _OTHER_HOST = {9}, {10}, {2, 18, 19, 20, 21}, {62, 64}
_OWN_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
# The resolver's word that a name has no address. All else, such as EAI_AGAIN, says nothing of the name.
_NO_ADDRESS = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
# ApiVersions, version 0, correlation id 7, no client id: a broker answers it to whoever asks.
_HELLO = struct.pack(">ihhih", 10, 18, 0, 7, -1)


class ClusterAdmin(AdminClient):
    """An admin client that keeps the settings of its connection: by them is found out why no broker answers it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        end_waiting()
        self.connection = connection_of(config)
        super().__init__(self.connection)

    def __del__(self) -> None:
        put_aside(self)


def explained(admin: AdminClient, error: BrokerUnreachableError) -> KeyorderError:
    """What stands in the way of this client, or `error` where nothing is found."""
    if isinstance(error, TlsError) or not isinstance(admin, ClusterAdmin):
        return error
    return refusal(admin.connection) or error


def refusal(config: Mapping[str, Any]) -> KeyorderError | None:
    """What stands in the way of a client with these settings: HostUnknownError, TlsError or NotAuthorizedError; or None."""
    connection = connection_of(config)
    servers = str(connection.get("bootstrap.servers") or connection.get("metadata.broker.list"))
    found = [address for address in map(_address, servers.split(",")) if _listens(address)]
    if not found:
        return unknown_hosts(servers)
    protocol = str(connection.get("security.protocol", "plaintext")).lower()
    if not protocol.endswith("ssl"):
        for address in found:
            if not _answers_in_the_clear(address) and _speaks_tls(address):
                wanted = "SASL_SSL" if protocol.startswith("sasl") else "SSL"
                return TlsError(
                    servers,
                    "security.protocol",
                    f"the broker at {_named(address)} speaks TLS and this client does not",
                    f"set it to {wanted}, with ssl.ca.location, or name the port for {protocol.upper()}",
                )
        if protocol == "plaintext":
            return None
    for event in _events(connection):
        if event.code() in _REFUSED_LOGIN:
            return translate(event, "log in to", "the cluster", servers)
        said = _of_tls(connection, event.str() or "")
        if said is not None:
            return TlsError(servers, *said)
    return None


def unknown_hosts(servers: str) -> HostUnknownError | None:
    """The error that none of these hosts has an address here; None where one has, or where the resolver does not answer."""
    said = ""
    for host, port in map(_address, filter(str.strip, servers.split(","))):
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as refused:
            if refused.errno not in _NO_ADDRESS:
                return None
            said = refused.strerror or "unknown"
        except UnicodeError:
            said = "no name of a host"
        else:
            return None
    return HostUnknownError(servers, said) if said else None


def _events(connection: Mapping[str, Any]) -> list[KafkaError]:
    """What a client of its own hears of its connections; nothing if a broker answers it."""
    heard: list[KafkaError] = []
    own: dict[str, Any] = {**connection, "error_cb": heard.append}
    admin = AdminClient(own)
    deadline = clock.now() + _LISTENED
    while clock.now() < deadline and not any(_telling(event) for event in heard):
        try:
            admin.list_topics(timeout=0.3)
            return []
        except KafkaException:
            admin.poll(0)
    return heard


def _telling(event: KafkaError) -> bool:
    return event.code() in (*_REFUSED_LOGIN, KafkaError._SSL) or "SSL" in (event.str() or "")


def _of_tls(connection: Mapping[str, Any], text: str) -> tuple[str, str, str] | None:
    """(setting, problem, fix) of one event of the library."""
    at = _AT.search(text)
    if at is None:
        return None
    address = (at[1].strip("[]"), int(at[2]))
    alert = _ALERT.search(text)
    if alert is not None:
        return _of_alert(connection, address, int(alert[2]), alert[1])
    if "certificate verify failed" in text:
        return _of_server(connection, address)
    if _answers_in_the_clear(address):
        clear = "SASL_PLAINTEXT" if "sasl" in str(connection["security.protocol"]).lower() else "PLAINTEXT"
        return (
            "security.protocol",
            f"the broker at {_named(address)} does not speak TLS",
            f"name its TLS port in bootstrap.servers, or set {clear} where records may pass in the clear",
        )
    return None


def _of_alert(
    connection: Mapping[str, Any], address: tuple[str, int], number: int, words: str
) -> tuple[str, str, str] | None:
    given = next((name for name in _OWN_CERTIFICATE if connection.get(name)), None)
    if given is None:
        if number not in _OF_NONE:
            return None
        return (
            "ssl.certificate.location",
            f"the broker at {_named(address)} wants a client certificate and none is given",
            "give one with its key: ssl.certificate.location and ssl.key.location (PEM), or ssl.keystore.location (PKCS#12)",
        )
    if number not in _OF_CERTIFICATES:
        return None
    end = _end_of(connection)
    if end is not None and end < datetime.now(timezone.utc):
        return given, f"the client certificate expired on {end:%Y-%m-%d %H:%M} UTC", "renew it"
    return (
        given,
        f"the broker at {_named(address)} does not accept the client certificate ({words})",
        "give one that has not expired, of a CA that the broker trusts (its ssl.truststore)",
    )


def _of_server(connection: Mapping[str, Any], address: tuple[str, int]) -> tuple[str, str, str] | None:
    """What is wrong with the certificate that the broker shows: the library has one text for all of it."""
    try:
        context = _context(connection)
        with (
            socket.create_connection(address, _ANSWERED) as raw,
            context.wrap_socket(raw, server_hostname=address[0]),
        ):
            return None
    except ssl.SSLCertVerificationError as refused:
        code, words = refused.verify_code, refused.verify_message
    except OSError:
        return None
    where, authority = f"the certificate of the broker at {_named(address)}", _ca_of(connection)
    if code in _EXPIRED:
        return "ssl.keystore of the broker", f"{where}, or its CA's, has expired", "renew it, on the broker"
    if code in _NOT_YET:
        return "ssl.keystore of the broker", f"{where} is not valid yet", "see that the clocks here and there are right"
    if code in _OTHER_HOST:
        return (
            "ssl.endpoint.identification.algorithm",
            f"{where} is made for another host ({words})",
            "connect by a name that it has, or have one made for this name; none switches the check off",
        )
    if code in _UNKNOWN_CA:
        given = "it is not set, and no CA of this machine" if authority not in connection else "no CA in it"
        return authority, f"{given} has signed {where}", "give the certificate of the CA that has, as PEM"
    return (
        authority,
        f"{where} is not accepted ({words})",
        "see that the broker's certificate and its CA belong together",
    )


def _ca_of(connection: Mapping[str, Any]) -> str:
    return "ssl.ca.pem" if connection.get("ssl.ca.pem") else "ssl.ca.location"


def _context(connection: Mapping[str, Any]) -> ssl.SSLContext:
    """Trusts whom the client library is told to trust. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = str(connection.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    place = str(connection.get("ssl.ca.location", ""))
    if connection.get("ssl.ca.pem"):
        context.load_verify_locations(cadata=str(connection["ssl.ca.pem"]))
    elif place in ("", "probe"):
        context.set_default_verify_paths()
    elif Path(place).is_dir():
        context.load_verify_locations(capath=place)
    else:
        context.load_verify_locations(cafile=place)
    return context


def _end_of(connection: Mapping[str, Any]) -> datetime | None:
    """Until when the client's own certificate is valid; None where that cannot be read (PKCS#12)."""
    with suppress(OSError, ValueError, IndexError):
        text = connection.get("ssl.certificate.pem") or Path(connection["ssl.certificate.location"]).read_text("ascii")
        return valid_until(ssl.PEM_cert_to_DER_cert(_first(str(text))))
    return None


def _first(pem: str) -> str:
    end = "-----END CERTIFICATE-----"
    return pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]


def valid_until(der: bytes) -> datetime:
    """The end of a certificate's validity (X.509: RFC 5280, section 4.1). Raises ValueError or IndexError."""
    _, fields, _ = _element(der, _element(der, 0)[1])  # inside Certificate, inside TBSCertificate
    if der[fields] == 0xA0:
        fields = _element(der, fields)[2]  # the version
    for _ in range(3):  # serial number, signature's algorithm, issuer
        fields = _element(der, fields)[2]
    begin = _element(der, _element(der, fields)[1])
    kind, start, end = _element(der, begin[2])
    text = der[start:end].decode("ascii")
    if kind == 0x17:  # UTCTime: two digits of the year, of 1950 to 2049
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """(tag, where its contents begin, where they end) of the element there."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + length


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition("://")[2].rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else (text.strip(), 9092)


def _named(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _ANSWERED).close()
    except (OSError, UnicodeError):
        return False
    return True


def _answers_in_the_clear(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, _ANSWERED) as raw:
            raw.sendall(_HELLO)
            with raw.makefile("rb") as stream:
                return stream.read(8)[4:] == struct.pack(">i", 7)
    except OSError:
        return False


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Whether a server there answers a TLS hello, be it by an alert. Nothing is sent or believed beyond that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, _ANSWERED) as raw, context.wrap_socket(raw):
            return True
    except ssl.SSLError as said:
        return "ALERT" in (said.reason or "")
    except OSError:
        return False
