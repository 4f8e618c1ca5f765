"""One broker that speaks TLS, and certificates made for it: good ones, an expired one, one of another host, one of another CA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
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

_DAY = timedelta(days=1)


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

    def issue(self, name: str, address: str = HOST, expired: bool = False) -> Identity:
        """A certificate for a client, or for the server at `address`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        end = datetime.now(timezone.utc) + (-_DAY if expired else 30 * _DAY)
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


class TlsKafka:
    """A broker with a listener in the clear, by which tests look on, and these, which ask for TLS.

    MUTUAL: clients show a certificate. SASL: SCRAM-SHA-512 over TLS. EXPIRED, ELSEWHERE: as MUTUAL, with a server's
    certificate that has expired, and one that was made for another host.
    """

    LISTENERS = ("MUTUAL", "SASL", "EXPIRED", "ELSEWHERE")

    def __init__(self, folder: Path, user: str, password: str, version: str) -> None:
        self.folder, self.user, self.password = folder, user, password
        self.ca, self.other_ca = Authority("keyorder test CA"), Authority("another CA")
        self.client, self.expired_client = self.ca.issue("app"), self.ca.issue("app", expired=True)
        self._ports = dict(zip(self.LISTENERS, free_ports(len(self.LISTENERS)), strict=True))
        self._server = {
            "MUTUAL": self.ca.issue("broker"),
            "SASL": self.ca.issue("broker"),
            "EXPIRED": self.ca.issue("broker", expired=True),
            "ELSEWHERE": self.ca.issue("broker", address="127.9.9.9"),
        }
        self.cluster = LocalCluster(version=version, properties=PATIENT, node_properties=self._properties)
        self.cluster.start()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(user, info, password.encode())
        admin = AdminClient(self.plain())
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(60)

    def _properties(self, plan: ClusterPlan, node: Node) -> Mapping[str, str]:
        ports = {"CLIENT": node.port, **self._ports}
        spoken = {name: "SASL_SSL" if name == "SASL" else "SSL" for name in self.LISTENERS}
        settings = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
            + f",CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{protocol}" for name, protocol in spoken.items()),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
        for name, identity in self._server.items():
            prefix = f"listener.name.{name.lower()}.ssl."
            settings |= {
                f"{prefix}keystore.type": "PEM",
                f"{prefix}keystore.certificate.chain": identity.certificate,
                f"{prefix}keystore.key": identity.private(),
                f"{prefix}truststore.type": "PEM",
                f"{prefix}truststore.certificates": self.ca.certificate,
                f"{prefix}client.auth": "none" if name == "SASL" else "required",
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

    def sasl(self) -> dict[str, str]:
        """Settings of a client that logs in with a password."""
        return {
            "bootstrap.servers": self.address("SASL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.file("ca.pem", self.ca.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": self.user,
            "sasl.password": self.password,
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
