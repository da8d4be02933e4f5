"""The rows, their gates, the table and the JSON. Gates come from the design; rows without one are informative."""

import dataclasses
import json
import os

import clock


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    gate_ms: float | None = None
    gate_syncs: int | None = None
    peers: dict = dataclasses.field(default_factory=dict)  # peer -> least ratio (peer / Moorage); None: informative
    added_ms: float | None = None  # at most this much more than each peer


ROWS = (
    Row("create", 10, 2, {"git_worktree": 200}),
    Row("create_check"),
    Row("start", 50, None, {"docker_run": None, "lxc_start": None}),
    Row("exec", 5, None, {"docker_exec_api": None}),
    Row("exec_started", None, 1),
    Row("exec_cli", None, None, {"lxc_attach": 1, "docker_exec": 5}),
    Row("exec_docker", None, None, {"docker_exec_api": 5}),
    Row("exec_docker_cli", None, None, {"docker_exec": 5}),
    Row("start_docker", None, None, {"docker_run": 1 / 1.2, "docker_run_api": None}),
    Row("move"),
    Row("move_back"),
    Row("tti", 80),
    Row("snapshot", 10),
    Row("snapshot_live", 10),
    Row("snapshot_held"),
    Row("snapshot_busy"),
    Row("snapshot_busy_pause", 50),
    Row("snapshot_busy_next"),
    Row("snapshot_busy_next_pause", 50),
    Row("fork", 10, None, {"git_worktree": 200, "cp_reflink_xfs": None, "cp_reflink_btrfs": None, "lxd_copy": None}),
    Row("restore", 10),
    Row("diff", 10, None, {"git_diff": None}),
    Row("chain_live_git_status", None, None, {"fresh": 0.67}),
    Row("chain_live_build", None, None, {"fresh": 0.67}),
    Row("chain_git_status", None, None, {"fresh": 0.67}),
    Row("chain_build", None, None, {"fresh": 0.67}),
    Row("create_delta", 150, None, {"git_checkout": None}),
    Row("base_tree", None, None, {"git_checkout": 1}),
    Row("net_connect", peers={"direct": None}, added_ms=1),
    Row("net_connect_tls", peers={"direct": None}, added_ms=1),
    Row("net_connect_fresh", peers={"direct": None}),
    Row("net_connect_first"),
    Row("net_throughput", peers={"direct": 0.6}),
    Row("net_upload", peers={"direct": 0.6}),
    Row("net_terminated", peers={"passed": None}, added_ms=2),
    Row("net_terminated_get", peers={"direct": 0.4}),
    Row("net_terminated_put", peers={"direct": 0.4}),
    Row("net_sandboxes", 20, peers={"direct": None}),
    Row("daemon_killed_download", peers={"alone": None}),
    Row("daemon_killed_download_pause", peers={"alone": None}),
    Row("remote_exec", None, None, {"ssh": 1 / 1.3}),
    Row("remote_exec_e2b", None, None, {"sdk": 1}),
    Row("remote_sandboxes", 250),
    Row("remote_push", None, None, {"rsync": 1}),
    Row("remote_push_changed", None, None, {"rsync": 2}),
    Row("remote_sync", 50, None, {"unchanged": None}),
    Row("neighbour", None, None, {"alone": 0.5}),
    Row("neighbour_busy", None, None, {"alone": None}),
    Row("git_status_first", None, None, {"git_status_second": None, "lstat_first": 0.7, "plain_overlay": 1}),
)


def p50(samples):
    return clock.percentile(samples, 50)


def entries(bench):
    """One entry per peer; a row without peers has one entry with a null peer."""
    for row in ROWS:
        ours = bench.samples.get(row.name)
        if not ours:
            continue
        entry = {"name": row.name, "n": len(ours), "p50_ms": round(p50(ours), 3),
                 "p99_ms": round(clock.percentile(ours, 99), 3), "syncs": bench.syncs.get(row.name)}
        peers = {peer: bench.samples.get(f"{row.name}/{peer}") for peer in row.peers}
        peers = {peer: samples for peer, samples in peers.items() if samples} or {None: None}
        for peer, samples in peers.items():
            median = p50(samples) if samples else None
            yield row, {**entry, "peer": peer, "peer_p50_ms": round(median, 3) if median else None,
                        "ratio": round(median / p50(ours), 3) if median else None}


def gates(row, entry):
    """(text, holds) for every gate that applies to this entry."""
    if row.gate_ms is not None:
        yield f"<= {row.gate_ms:g} ms", entry["p50_ms"] <= row.gate_ms
    if row.gate_syncs is not None and entry["syncs"] is not None:
        # The database writes a checkpoint now and then: a fraction of a sync per call.
        yield f"<= {row.gate_syncs} syncs", round(entry["syncs"]) <= row.gate_syncs
    if row.added_ms is not None and entry["peer"] is not None:
        yield f"<= {row.added_ms:g} ms more", entry["p50_ms"] <= entry["peer_p50_ms"] + row.added_ms
    least = row.peers.get(entry["peer"])
    if least is not None:
        yield f">= {least:.2g}x" if least < 1 else f">= {least:g}x", entry["ratio"] >= least


def number(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table(bench, only=None):
    """All rows with samples; `only`: just these names."""
    lines = [("name", "n", "p50 ms", "p99 ms", "syncs", "peer", "peer ms", "ratio", "gates", "holds")]
    for row, entry in entries(bench):
        if only is not None and row.name not in only:
            continue
        answered = list(gates(row, entry))
        lines.append((
            entry["name"], str(entry["n"]), number(entry["p50_ms"]), number(entry["p99_ms"]), number(entry["syncs"]),
            entry["peer"] or "-", number(entry["peer_p50_ms"]), number(entry["ratio"]),
            ", ".join(text for text, _ in answered) or "-",
            "-" if not answered else "yes" if all(holds for _, holds in answered) else "NO"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    left = {0, 5, 8, 9}
    return "\n".join("  ".join(cell.ljust(width) if i in left else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def sync_lines(bench):
    for name, targets in bench.sync_targets.items():
        calls = sum(targets.values()) / bench.syncs[name] if bench.syncs[name] else 1
        yield f"{name}: " + (", ".join(f"{count / calls:g} {what}" for what, count in targets.most_common()) or "none")


def slow_lines(bench, slow_ms):
    """Uses the fastest calls: tracing adds random time, and only the delay is always there."""
    for name, runs in bench.slow.items():
        plain, slow = min(runs[0]), min(runs[slow_ms])
        yield (f"{name}: {number(slow)} ms with {slow_ms:g} ms added per synchronous write, {number(plain)} ms traced "
               f"without: about {max(0.0, (slow - plain) / slow_ms):.1f} of them block the call")


GATES_KIB = {"fork_disk": 64, "remote_sandboxes": 150 << 10}


def size_entries(bench):
    for name, samples in bench.sizes.items():
        yield {"name": name, "n": len(samples), "p50_kib": round(p50(samples), 1),
               "max_kib": round(max(samples), 1), "gate_kib": GATES_KIB[name], "holds": max(samples) <= GATES_KIB[name]}


def size_lines(bench):
    for entry in size_entries(bench):
        yield (f"{entry['name']}: {number(entry['p50_kib'])} KiB, at most {number(entry['max_kib'])}; "
               f"gate {entry['gate_kib']} KiB {'holds' if entry['holds'] else 'does NOT hold'}")


def noise(loads):
    return (f"load average {loads[0]:.1f} before, {loads[1]:.1f} after, {os.cpu_count()} CPUs"
            + ("; other work was running: only ratios are meaningful" if min(loads) > os.cpu_count() else ""))


def write_json(bench, path):
    with open(path, "w") as file:
        json.dump([entry for _, entry in entries(bench)] + list(size_entries(bench)), file, indent=1)
        file.write("\n")
