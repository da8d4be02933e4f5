"""Creates hostile trees inside a sandbox, and lists all facts about a tree, to compare two."""

import decimal
import hashlib
import inspect
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile

# Imported here: during a verb an import error, an OSError too, would look like the daemon's death.
if not shutil.which("zstd"):
    raise ImportError("the program zstd is missing: apt-get install -y zstd")

# Run by python3 inside: creates names that no tool expects, and every kind of file that a sandbox can create.
MAKE = r"""
import os, socket, struct, subprocess
os.chdir("/workspace")
os.makedirs("hostile")
names = [b"a\nb", b"\x1b[31mred", b"\xff\xfe not utf-8", b"n" * 255, b"-rf", b"--", b" ", b"a\\b", b"a=b", b"\r", b"..."]
for i, name in enumerate(names):
    path = b"hostile/" + name
    with open(path, "wb") as out:
        out.write(name * 3)
    os.utime(path, ns=(1, (i - 3) * 10**9 + 123456789))
    os.makedirs(b"hostile/d" + name[:250])
    os.symlink(name, b"hostile/s" + name[:250])
os.utime("hostile/s--", ns=(5, 987654321987654321), follow_symlinks=False)
with open("sparse", "wb") as out:
    out.truncate(10 << 30)
    out.seek(5 << 30)
    out.write(b"middle" * 1000)
    out.seek((10 << 30) - 4)
    out.write(b"tail")
with open("hole", "wb") as out:
    out.truncate(10 << 30)
open("suid", "w").write("x"); os.chmod("suid", 0o6755)
os.mkdir("sticky"); os.chmod("sticky", 0o3777)
os.mkdir("closed"); open("closed/in", "w").write("in"); os.chmod("closed", 0)
open("one", "w").write("linked"); os.link("one", "two"); os.link("one", "hostile/three")
os.mkfifo("fifo", 0o620)
held = socket.socket(socket.AF_UNIX); held.bind("socket"); held.close()
for path in ("one", "sticky"):
    os.setxattr(path, b"user.bin\xff=", b"\0\xff\n")
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in
      [(1, 7, 2**32 - 1), (2, 4, 5), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 0, 2**32 - 1)])
os.setxattr("sticky", "system.posix_acl_default", acl)
os.makedirs("ign"); open("ign/f", "w").write("ignored")
os.rename("src", "moved"); open("moved/new", "w").write("new in a renamed directory")
os.remove("README.md"); os.mkdir("README.md"); open("README.md/file", "w").write("a directory now")
open(os.path.expanduser("~/home file"), "w").write("home")
os.remove(os.path.expanduser("~/.profile"))
git = lambda *argv: subprocess.run(["git", *argv], check=True, capture_output=True)
open("committed", "w").write("by the agent"); git("add", "committed"); git("commit", "-qm", "of the agent")
open("staged", "w").write("staged"); git("add", "staged")
os.chown("suid", 1000, 0) if os.getuid() == 0 else None
"""
ROOT = r"""
cp /bin/true /workspace/capable && chmod 755 /workspace/capable
python3 - <<'END'
import os, struct
os.setxattr("/workspace/capable", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
open("/workspace/of-root", "w").write("root"); os.chmod("/workspace/of-root", 0o4711)
os.chown("/workspace/one", 4321, 65534)
END
"""


def contents(path):
    """Facts about a regular file. Not its blocks: they include file system metadata, which depends on
    when it was written."""
    data, digest, at = [], hashlib.sha256(), 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while at < size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # a hole to the end
                break
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            data.append([begin, at])
            file.seek(begin)
            digest.update(file.read(at - begin))
    return {"size": size, "data": data, "sha256": digest.hexdigest()}


# Run inside: lists the merged tree as the agent sees it.
LOOK = "import hashlib, json, os, stat, sys\n" + inspect.getsource(contents) + r"""
result, inodes = {}, {}
def look(path):
    status = os.lstat(path)
    entry = {"mode": status.st_mode, "uid": status.st_uid, "gid": status.st_gid, "mtime": status.st_mtime_ns}
    entry["xattrs"] = {n: os.getxattr(path, n, follow_symlinks=False).hex()
                       for n in sorted(os.listxattr(path, follow_symlinks=False))}
    if not stat.S_ISDIR(status.st_mode):
        entry["links"] = status.st_nlink
        entry["first"] = inodes.setdefault((status.st_dev, status.st_ino), path.hex())
    if stat.S_ISLNK(status.st_mode):
        entry["target"] = os.readlink(path).hex()
    if stat.S_ISREG(status.st_mode):
        entry |= contents(path)
    result[path.hex()] = entry
    if stat.S_ISDIR(status.st_mode):
        for name in sorted(os.listdir(path)):
            look(path + b"/" + name)
for top in (b"/workspace", b"/home/user"):
    look(top)
json.dump(result, sys.stdout)
"""


def differences(before, after, times_of=None):
    """The differences of two answers of LOOK, as lines for people. times_of: paths whose times are compared; the others
    are in base tree and image, which another store created at another time."""
    lines = []
    for key in sorted(set(before) | set(after)):
        path = bytes.fromhex(key)
        one, two = before.get(key), after.get(key)
        if one == two:
            continue
        if one is None or two is None:
            lines.append(f"{path!r} is only {'after' if one is None else 'before'}")
            continue
        for field in one:
            if field == "mtime" and times_of is not None and path not in times_of:
                continue
            if one[field] != two.get(field):
                lines.append(f"{path!r} {field}: {one[field]!r} -> {two.get(field)!r}")
    return lines


def raw(top):
    """The same for a layer's upper directory on the host, without overlayfs's own attributes."""
    result, first = {}, {}

    def look(path):
        status = os.lstat(path)
        entry = {"mode": status.st_mode, "uid": status.st_uid, "gid": status.st_gid}
        whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
        entry["xattrs"] = {n: os.getxattr(path, n, follow_symlinks=False).hex()
                           for n in sorted(os.listxattr(path, follow_symlinks=False))
                           if n not in ("trusted.overlay.origin", "trusted.overlay.impure", "trusted.overlay.uuid")}
        if not whiteout:
            entry["mtime"] = status.st_mtime_ns
        if not stat.S_ISDIR(status.st_mode) and not whiteout:
            entry["links"] = status.st_nlink
            entry["first"] = first.setdefault(status.st_ino, path.hex())
        if stat.S_ISREG(status.st_mode):
            entry |= contents(path)
        result[path.hex()] = entry
        if stat.S_ISDIR(status.st_mode):
            for name in sorted(os.listdir(path)):
                look(path + b"/" + name)
    here = os.getcwd()
    os.chdir(top)
    try:
        look(b".")
    finally:
        os.chdir(here)
    return result


def in_layer(layer):
    """Inside paths of a layer's own files."""
    return {top + os.fsencode(bytes.fromhex(path))[1:] for part, top in (("tree", b"/workspace"), ("home", b"/home/user"))
            for path in raw(layer / part / "upper")}


def look(client, workspace):
    out = client.exec(workspace, ["python3", "-c", LOOK], user="root")
    if out.exit_code != 0:
        raise AssertionError(out.stderr.decode(errors="replace"))
    return json.loads(out.stdout)


# --- archives not written by moorage ---

def unpacked(archive):
    """The tar in an archive, as bytes."""
    return subprocess.run(["zstd", "-dcq", "--long=25"], input=archive, capture_output=True, check=True).stdout


def packed(tar):
    """A tar as an archive: compressed, and with a true trailer."""
    frame = subprocess.run(["zstd", "-cq", "--check"], input=tar, capture_output=True, check=True).stdout
    return frame + b"\x5e\x2a\x4d\x18\x28\0\0\0MOORAGE\x01" + hashlib.sha256(frame).digest()


def lengthed(text):
    return str(len(text)).encode() + b":" + text


TYPES = {tarfile.REGTYPE: 0, tarfile.DIRTYPE: 1, tarfile.SYMTYPE: 2, tarfile.LNKTYPE: 3, tarfile.FIFOTYPE: 4}


def digest(member, content):
    """The index of an entry without attributes and holes (packs/tar_entry.cc)."""
    kind = TYPES[member.type]
    seconds, nanoseconds = divmod(int(decimal.Decimal(member.pax_headers.get("mtime", int(member.mtime))) * 10**9), 10**9)
    target = member.linkname.encode("utf-8", "surrogateescape") if kind in (2, 3) else b""
    text = lengthed(member.name.encode("utf-8", "surrogateescape"))
    for number in (kind, member.mode, member.uid, member.gid, seconds, nanoseconds, len(content), 0):
        text += lengthed(str(number).encode())
    return hashlib.sha256(text + lengthed(target) + content).hexdigest()


def archive_of(members):
    """An archive of (TarInfo, bytes), with its index."""
    out, lines = io.BytesIO(), b""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            if member.type in TYPES:
                lines += json.dumps({"path": member.name, "size": len(content),
                                     "sha256": digest(member, content)}).encode() + b"\n"
        index = tarfile.TarInfo("index.jsonl")
        index.size = len(lines)
        tar.addfile(index, io.BytesIO(lines))
    return packed(out.getvalue())


def members_of(archive):
    """The contents of an archive of a workspace without attributes: [(TarInfo, bytes)], without the index."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(unpacked(archive))) as tar:
        for member in tar:
            if member.name == "index.jsonl":
                continue
            content = tar.extractfile(member).read() if member.isreg() else b""
            found.append((member, content))
    return found


def edited(archive, changes):
    """The archive with changed contents of some files, and a matching index."""
    members = [(m, changes.get(m.name.encode(), lambda c: c)(c)) for m, c in members_of(archive)]
    return archive_of(members)
