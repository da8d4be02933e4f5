"""Slow, half-open, greedy and very many clients: others still get answers, and memory stays bounded."""

import concurrent.futures
import contextlib
import json
import pathlib
import resource
import socket
import time
import unittest

import load
from load import harness

CONNECTIONS = 10_000


class Clients(harness.TestCase):
    settings = {"api.max_connections": CONNECTIONS + 1000}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="work")
        cls.client.exec("work", "true")
        resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)

    def connect(self, count):
        clients = []
        for _ in range(count):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(self.daemon.socket))
            self.addCleanup(client.close)
            clients.append(client)
        return clients

    def held(self):
        return load.holdings(self.daemon)["descriptors"]

    def test_ten_thousand_connections(self):
        before, memory = self.held(), load.status_bytes(self.daemon.process.pid, "VmRSS")
        with load.watched(self.client, f"{CONNECTIONS} idle connections") as latencies:
            clients = self.connect(CONNECTIONS)
            harness.wait_until(lambda: self.held() >= before + CONNECTIONS, what="all are accepted")
            time.sleep(2)
            self.assertEqual(self.client.exec("work", "echo served").stdout, b"served\n")
        grown = load.status_bytes(self.daemon.process.pid, "VmRSS") - memory
        print(f"memory of one idle connection: {grown // CONNECTIONS} bytes")
        self.assertLess(load.percentile(latencies, 0.99), load.LS_P99_S)
        if not harness.SANITIZED:
            self.assertLess(grown, CONNECTIONS * (32 << 10))
        for client in clients:
            client.close()
        harness.wait_until(lambda: self.held() <= before + 2, what="all are closed again")

    def test_slow_and_half_open_clients(self):
        before = self.held()
        starts = [b"", b"P", b"GET /v1/health HTTP/1.1\r\nHost: x\r\n", b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n",
                  b"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"]
        with load.watched(self.client, "1,000 slow and half-open clients") as latencies:
            clients = self.connect(1000)
            for number, client in enumerate(clients):
                client.sendall(starts[number % len(starts)])
                if number % 7 == 0:
                    client.shutdown(socket.SHUT_WR)
            for _ in range(30):
                for client in clients[::10]:
                    with contextlib.suppress(OSError):
                        client.send(b"x")
                time.sleep(0.1)
        self.assertLess(load.percentile(latencies, 0.99), load.LS_P99_S)
        for client in clients:
            client.close()
        harness.wait_until(lambda: self.held() <= before + 2, 60, "their descriptors are closed")

    def test_unread_output(self):
        exec_id = self.client.exec("work", "head -c 50000000 /dev/zero").exec["id"]
        memory = load.status_bytes(self.daemon.process.pid, "VmRSS")
        with load.watched(self.client, "200 readers who do not read") as latencies:
            for client in self.connect(200):
                client.sendall(f"GET /v1/execs/{exec_id}/output?raw=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            time.sleep(3)
        self.assertLess(load.percentile(latencies, 0.99), load.LS_P99_S)
        if not harness.SANITIZED:
            self.assertLess(load.status_bytes(self.daemon.process.pid, "VmRSS") - memory, 256 << 20)

    def test_large_bodies(self):
        memory = load.status_bytes(self.daemon.process.pid, "VmRSS")
        deep = b"[" * 100_000
        bodies = [("POST", "/workspaces", b" " * (64 << 20)), ("POST", "/workspaces", deep), ("PUT", "/workspaces/work/file", bytes(64 << 20)),
                  ("POST", "/workspaces", json.dumps({"repo_url": "x" * (60 << 20)}).encode())] * 4

        def send(number):
            method, path, body = bodies[number]
            query = {"path": f"file-{number}"} if method == "PUT" else None
            try:
                return self.client.request(method, path, query=query, body=body)
            except harness.raw_api.ApiError as error:
                return error.status
            except OSError:
                return None

        with load.watched(self.client, "16 bodies of 64 MB and of 100,000 levels") as latencies, concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(send, range(len(bodies))))
        for (method, _, _), answer in zip(bodies, answers):
            if method == "PUT":
                self.assertEqual(answer["size_bytes"], 64 << 20)
            else:
                self.assertIn(answer, (400, 413, 415, None))
        self.assertLess(load.percentile(latencies, 0.99), load.LS_P99_S)
        if not harness.SANITIZED:
            self.assertLess(load.status_bytes(self.daemon.process.pid, "VmRSS") - memory, 256 << 20)

    def test_long_commands_and_environments(self):
        """They take 1 MiB each, but neither running nor listing them takes as much in the daemon."""
        self.client.create(repo_url=self.url, name="wordy")
        self.client.exec("wordy", "true")
        memory = load.status_bytes(self.daemon.process.pid, "VmRSS")
        environment = {f"V{n}": "x" * 100_000 for n in range(6)}
        for _ in range(100):
            self.client.start_exec("wordy", ["sh", "-c", "sleep 600", "x" * 100_000], env=environment)
        pathlib.Path(f"/proc/{self.daemon.process.pid}/clear_refs").write_text("5")  # resets the peak
        listed = self.client.execs("wordy")
        self.assertGreater(len(listed), 50)
        older = self.client.execs("wordy", before=listed[-1]["id"])
        self.assertEqual(len(listed) + len(older), 101)
        self.assertTrue(self.client.history("wordy", limit=1000)["truncated"])
        self.client.request("GET", "/top")
        with self.assertRaisesRegex(harness.raw_api.ApiError, "is busy"):
            self.client.stop("wordy")
        self.daemon.restart()
        self.assertEqual(len(self.client.execs("wordy", running=True)), len(listed))
        self.client.stop("wordy", force=True)
        self.client.delete("wordy", purge=True)
        if not harness.SANITIZED:
            self.assertLess(load.status_bytes(self.daemon.process.pid, "VmHWM") - memory, 48 << 20)


if __name__ == "__main__":
    unittest.main()
