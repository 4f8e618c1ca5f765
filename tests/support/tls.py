"""One broker that speaks TLS, and certificates made for it: good ones, an expired one, one of another host, one of another CA."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from keyorder.connector.local.cluster import LocalCluster
from keyorder.connector.local.processes import free_ports
from keyorder.connector.local.properties import HOST, ClusterPlan, Node, to_properties
from support.cluster import PATIENT, ProcessKafka
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

#: Of the user who logs in; no log and no error says it.
PASSWORD = "marked-login-5ecret"
_DAY = timedelta(days=1)
# ApiVersions, version 0, correlation id 7, no client id: a broker answers it to whoever is let in.
_HELLO = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key. name: of its files."""

    name: str
    certificate: str
    key: ec.EllipticCurvePrivateKey

    def private(self, password: str = "") -> str:
        """The private key, encrypted where a password is given."""
        how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()


class Authority:
    """A CA that lives as long as the test."""

    def __init__(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        begun = self._begun(self._name, key, datetime.now(timezone.utc) + 30 * _DAY)
        made = begun.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            key, hashes.SHA256()
        )
        self._identity = Identity(name, made.public_bytes(Encoding.PEM).decode(), key)

    @property
    def certificate(self) -> str:
        """What those who trust it are given."""
        return self._identity.certificate

    def issue(self, name: str, address: str = HOST, expired: bool = False, lasts: timedelta | None = None) -> Identity:
        """A certificate for a client, or for the server at `address`. lasts: how long from now, a month by default."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        end = datetime.now(timezone.utc) + (-_DAY if expired else lasts or 30 * _DAY)
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        made = self._begun(subject, key, end).add_extension(names, critical=False)
        signed = made.sign(self._identity.key, hashes.SHA256())
        return Identity(f"{name}-{signed.serial_number}", signed.public_bytes(Encoding.PEM).decode(), key)

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, end: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(timezone.utc) - 10 * _DAY)
            .not_valid_after(end)
        )


def token(user: str, until: float) -> str:
    """An unsecured JSON web token (RFC 7515, appendix A.5). until: seconds of the wall clock."""

    def part(document: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': until - 3600, 'exp': until})}."


class TlsKafka:
    """A broker with a listener in the clear, by which tests look on, and these, which ask for TLS.

    MUTUAL: clients show a certificate. SASL: SCRAM-SHA-512 over TLS. EXPIRED, ELSEWHERE: as MUTUAL, with a server's
    certificate that has expired, and one that was made for another host. RELOGIN: as SASL, and OAUTHBEARER with unsecured
    tokens; who does not log in again within RELOGIN_MS is cut off.

    Its authorizer is on. The listener in the clear and `user`, by whichever way, have all rights.
    """

    LISTENERS = ("MUTUAL", "SASL", "EXPIRED", "ELSEWHERE", "RELOGIN")
    RELOGIN_MS = 3_000

    def __init__(
        self, folder: Path, user: str, password: str, version: str, properties: Mapping[str, str] = PATIENT
    ) -> None:
        self.folder, self.user, self.password = folder, user, password
        self.ca, self.other_ca = Authority("keyorder test CA"), Authority("another CA")
        self.client, self.expired_client = self.ca.issue("app"), self.ca.issue("app", expired=True)
        self._ports = dict(zip(self.LISTENERS, free_ports(len(self.LISTENERS)), strict=True))
        self._server = {
            "MUTUAL": self.ca.issue("broker"),
            "SASL": self.ca.issue("broker"),
            "EXPIRED": self.ca.issue("broker", expired=True),
            "ELSEWHERE": self.ca.issue("broker", address="127.9.9.9"),
            "RELOGIN": self.ca.issue("broker"),
        }
        self.cluster = LocalCluster(version=version, properties=properties, node_properties=self._properties)
        self.cluster.start()
        self.register(user, password)

    def register(self, user: str, password: str) -> None:
        """Let a user log in by SCRAM."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(user, info, password.encode())
        admin = AdminClient(self.plain())
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(60)

    def renew(self, listener: str, authority: Authority) -> None:
        """Give a listener a new certificate, of another CA perhaps, while it runs."""
        identity = authority.issue("broker")
        prefix = f"listener.name.{listener.lower()}.ssl."
        self._alter(
            {
                f"{prefix}keystore.type": "PEM",
                f"{prefix}keystore.certificate.chain": identity.certificate,
                f"{prefix}keystore.key": identity.private(),
            }
        )
        wanted = ssl.PEM_cert_to_DER_cert(identity.certificate)
        self._await(lambda: self._meets(listener, self.client)[0] == wanted)

    def trust(self, listener: str, *authorities: Authority) -> None:
        """Let a listener accept the clients' certificates of these CAs alone, from the next connection on."""
        prefix = f"listener.name.{listener.lower()}.ssl."
        certificates = "".join(authority.certificate for authority in authorities)
        self._alter({f"{prefix}truststore.type": "PEM", f"{prefix}truststore.certificates": certificates})
        self._await(lambda: self._meets(listener, self.client)[1] is (self.ca in authorities))

    def _meets(self, listener: str, who: Identity) -> tuple[bytes | None, bool]:
        """(the certificate that a listener shows to a new connection, whether it lets this client in)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(
            self.file(f"{who.name}.crt", who.certificate), self.file(f"{who.name}.key", who.private())
        )
        with (
            socket.create_connection((HOST, self._ports[listener]), 10) as raw,
            context.wrap_socket(raw, server_hostname=HOST) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
            try:
                secured.sendall(_HELLO)
                return shown, len(secured.recv(4)) > 0
            except OSError:
                return shown, False

    def _await(self, holds: Callable[[], bool]) -> None:
        """A broker takes a setting up a little later than it is accepted."""
        Retrying(stop=stop_after_delay(60), wait=wait_fixed(0.05), retry=retry_if_result(lambda found: not found))(
            holds
        )

    def _alter(self, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin = AdminClient(self.plain())  # held until the answer is there
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(60)

    def restart(self) -> None:
        """End every connection: the broker is stopped and comes back."""
        broker = self.cluster.brokers[0]
        broker.kill()
        broker.start()
        broker.wait_ready()

    def _properties(self, plan: ClusterPlan, node: Node) -> Mapping[str, str]:
        ports = {"CLIENT": node.port, **self._ports}
        logins = ("SASL", "RELOGIN")
        spoken = {name: "SASL_SSL" if name in logins else "SSL" for name in self.LISTENERS}
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        relogin = "listener.name.relogin"
        settings = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
            + f",CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{protocol}" for name, protocol in spoken.items()),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
            f"{relogin}.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            f"{relogin}.scram-sha-512.sasl.jaas.config": scram,
            f"{relogin}.oauthbearer.sasl.jaas.config": bearer,
            f"{relogin}.scram-sha-512.connections.max.reauth.ms": str(self.RELOGIN_MS),
            f"{relogin}.oauthbearer.connections.max.reauth.ms": str(self.RELOGIN_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{self.user};User:CN={self.user}",
            "allow.everyone.if.no.acl.found": "false",
        }
        for name, identity in self._server.items():
            prefix = f"listener.name.{name.lower()}.ssl."
            settings |= {
                f"{prefix}keystore.type": "PEM",
                f"{prefix}keystore.certificate.chain": identity.certificate,
                f"{prefix}keystore.key": identity.private(),
                f"{prefix}truststore.type": "PEM",
                f"{prefix}truststore.certificates": self.ca.certificate,
                f"{prefix}client.auth": "none" if name in logins else "required",
            }
        return settings

    def address(self, listener: str) -> str:
        """host:port of one of the listeners."""
        return f"{HOST}:{self._ports[listener]}"

    def plain(self) -> dict[str, str]:
        """Settings of a client in the clear."""
        return self.cluster.client_config()

    def file(self, name: str, text: str) -> str:
        """A file with this text."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def mutual(self, listener: str = "MUTUAL", who: Identity | None = None, key_password: str = "") -> dict[str, str]:
        """Settings of a client that shows a certificate, all of them PEM files."""
        identity = who or self.client
        return {
            "bootstrap.servers": self.address(listener),
            "security.protocol": "SSL",
            "ssl.ca.location": self.file("ca.pem", self.ca.certificate),
            "ssl.certificate.location": self.file(f"{identity.name}.crt", identity.certificate),
            "ssl.key.location": self.file(f"{identity.name}.key", identity.private(key_password)),
            **({"ssl.key.password": key_password} if key_password else {}),
        }

    def inline(self, key_password: str) -> dict[str, str]:
        """The same with PEM texts in place of files, and a key that has a password."""
        return {
            "bootstrap.servers": self.address("MUTUAL"),
            "security.protocol": "SSL",
            "ssl.ca.pem": self.ca.certificate,
            "ssl.certificate.pem": self.client.certificate,
            "ssl.key.pem": self.client.private(key_password),
            "ssl.key.password": key_password,
        }

    def sasl(self, listener: str = "SASL") -> dict[str, str]:
        """Settings of a client that logs in with a password."""
        return {
            "bootstrap.servers": self.address(listener),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.file("ca.pem", self.ca.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def bearer(self) -> dict[str, str]:
        """Settings of a client that logs in with tokens; where they come from is to be added."""
        return {
            "bootstrap.servers": self.address("RELOGIN"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.file("ca.pem", self.ca.certificate),
            "sasl.mechanism": "OAUTHBEARER",
        }

    def stop(self) -> None:
        """End the broker and delete its data."""
        self.cluster.wipe()


class Door(ProcessKafka):
    """The same broker as seen through one listener, for helpers that ask a KafkaUnderTest for a client's settings."""

    def __init__(self, kafka: TlsKafka, settings: Mapping[str, str]) -> None:
        self.brokers, self.cluster, self._settings = 1, kafka.cluster, dict(settings)

    @property
    def bootstrap_servers(self) -> str:
        return self._settings["bootstrap.servers"]

    def client_config(self, user: str | None = None) -> dict[str, str]:
        return dict(self._settings)

    def properties(self, file: Path) -> Path:
        """The settings but for the address as a properties file, as commands take it."""
        file.write_text(to_properties({k: v for k, v in self._settings.items() if k != "bootstrap.servers"}))
        return file
