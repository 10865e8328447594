"""A real broker of Kafka on this machine, its jars fetched by Maven coordinates."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # its stubs miss one

from benchmarks.maven import NoPackage, fetched

VERSION = "4.1.1"
_WAITING = 50_000  # messages that a producer may hold
BROKER = f"org.apache.kafka:kafka_2.13:{VERSION}"


class NoBroker(Exception):  # noqa: N818 - no error of a user's
    """Why there is none."""


def jars(coordinates: str = BROKER) -> Path:
    """Fetch a package and what it needs, once."""
    try:
        return fetched(coordinates)
    except NoPackage as reason:
        raise NoBroker(str(reason)) from None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Broker:
    """One broker that is its own controller, listening on the loopback address alone."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._java("kafka.Kafka", str(self.folder / "server.properties")),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def format(self) -> None:
        controller = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "false",
        }
        text = "\n".join(f"{name}={value}" for name, value in settings.items())
        (self.folder / "server.properties").write_text(text)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster,
            "-c",
            str(self.folder / "server.properties"),
        ]
        subprocess.run(self._java(*tool), capture_output=True, check=True, timeout=120)

    def topic(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(60)

    def widen(self, name: str, partitions: int) -> None:
        """Let a topic have more partitions."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_partitions([NewPartitions(name, partitions)]).values():
            made.result(60)

    def send(
        self,
        topic: str,
        messages: list[tuple[int, bytes, bytes | None]],
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        """Send (partition, value, key), in order."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        for number, (partition, value, key) in enumerate(messages):
            if number % _WAITING == 0 and producer.flush(60):
                raise NoBroker("the broker takes no messages")
            producer.produce(topic, value, key=key, partition=partition, headers=headers)
        if producer.flush(60):
            raise NoBroker("the broker takes no messages")

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx384m", "-cp", f"{jars()}{os.sep}*", *arguments]

    def _wait(self) -> None:
        """Ask until it answers."""
        quiet: dict[str, str | float | bool] = {
            "bootstrap.servers": self.servers,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        admin = AdminClient(quiet)
        for _ in range(60):
            with contextlib.suppress(KafkaException):
                admin.list_topics(timeout=2)
                return
            assert self.process is not None and self.process.poll() is None, "the broker has died"
        raise NoBroker("the broker does not answer")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """Run a broker for a while."""
    broker = Broker(folder, free_port())
    broker.format()
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
