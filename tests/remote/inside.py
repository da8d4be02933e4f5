"""Process 1 of a rented machine: makes its root directory, then runs programs and file operations in it.

Called by machine.py in new namespaces: inside.py ROOT USER CONTROL CGROUP GROUPS [plain]. CONTROL is a socket; each message on it is
one byte with descriptors: an answer socket, and the program's standard streams. A child reads its request, one line of
JSON, from the answer socket, answers one line, and does it. When the child ended, process 1 writes a last line: its
exit code or signal. At the end of CONTROL the machine ends, whoever let go of it. GROUPS is JSON: directories of control groups
to be joined by process 1, those that are the machine's own, and directories that are mounted: (of the host, in the machine). `plain`: no program may make namespaces, mounts or
control groups there, as root neither, as in many containers.
"""

import ctypes
import fcntl
import json
import os
import pwd
import grp
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import termios

LIBC = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PIECE = 256 << 10
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ETC = ("alternatives", "ssl", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "profile", "pam.d",
       "security", "login.defs", "mime.types", "services", "protocols", "terminfo", "environment")


class Refused(Exception):
    """A file operation that cannot be done; the first argument is a code of Connect."""


def mount(source, target, kind=None, flags=0, data=None):
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    if LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}: {os.strerror(ctypes.get_errno())}")


def make_etc(etc, user):
    os.mkdir(etc, 0o755)
    for name in ETC:
        if os.path.isdir(f"/etc/{name}"):
            shutil.copytree(f"/etc/{name}", f"{etc}/{name}", symlinks=True, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("private"))
        elif os.path.exists(f"/etc/{name}"):
            shutil.copy(f"/etc/{name}", etc)
    texts = {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\n{user}:x:1000:1000::/home/{user}:/bin/bash\n"
                  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ntty:x:5:\n{user}:x:1000:\nnogroup:x:65534:\n",
        "shadow": f"root:*:1:0:99999:7:::\n{user}:*:1:0:99999:7:::\n",
        "hosts": "127.0.0.1 localhost machine\n", "resolv.conf": "", "hostname": "machine\n",
        "sudoers": f"root ALL=(ALL:ALL) ALL\n{user} ALL=(ALL:ALL) NOPASSWD: ALL\n",
    }
    for name, text in texts.items():
        with open(f"{etc}/{name}", "w") as file:
            os.chmod(file.fileno(), 0o644)
            file.write(text)
    os.chmod(f"{etc}/sudoers", 0o440)
    os.chmod(f"{etc}/shadow", 0o600)


def make_dev(dev):
    os.umask(0)
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755,size=64m")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_CLOEXEC, 0o666))
        mount(f"/dev/{name}", f"{dev}/{name}", None, MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}")
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("tmpfs", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"{dev}/{name}")


def join_groups(groups):
    """And sees nothing above them."""
    for path in groups["joined"]:
        with open(f"{path}/cgroup.procs", "w") as file:
            file.write("0")
    new_cgroup = 0x02000000
    if LIBC.unshare(new_cgroup) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def show_groups(target, shown, writable):
    """As a system has them: version 2 at the top, of version 1 a directory for each controller."""
    for path in shown:
        place = target if len(shown) == 1 else f"{target}/{os.path.basename(os.path.dirname(path))}"
        os.makedirs(place, exist_ok=True)
        mount(path, place, None, MS_BIND)
        if not writable:
            mount(None, place, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def make_root(root, user, groups, plain):
    """The machine has the host's /usr, read-only; all else is its own. Files from before stay."""
    os.umask(0)  # modes are as given here
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount(root, root, None, MS_BIND)
    for name in ("usr", "dev", "proc", "sys", "run", "old", "home", "opt", "mnt", "srv", "var"):
        os.makedirs(f"{root}/{name}", 0o755, exist_ok=True)
    places = (("tmp", 0o1777, 0), ("var/tmp", 0o1777, 0), ("root", 0o700, 0), (f"home/{user}", 0o755, 1000))
    for name, mode, owner in places:
        if not os.path.exists(f"{root}/{name}"):
            os.mkdir(f"{root}/{name}")
            os.chmod(f"{root}/{name}", mode)
            os.chown(f"{root}/{name}", owner, owner)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}") and not os.path.lexists(f"{root}/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
    if not os.path.exists(f"{root}/etc"):
        make_etc(f"{root}/etc", user)
    mount("/usr", f"{root}/usr", None, MS_BIND | MS_REC)
    mount(None, f"{root}/usr", None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    for source, target in groups["volumes"]:
        os.makedirs(f"{root}/{target}", 0o755, exist_ok=True)
        mount(source, f"{root}/{target}", None, MS_BIND)
    make_dev(f"{root}/dev")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", f"{root}/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    mount("tmpfs", f"{root}/sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=1m")
    show_groups(f"{root}/sys/fs/cgroup", groups["shown"], not plain)
    mount("tmpfs", f"{root}/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m")
    if LIBC.pivot_root(os.fsencode(root), os.fsencode(f"{root}/old")) != 0:
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/")
    if LIBC.umount2(b"/old", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount /old")
    os.rmdir("/old")
    os.umask(0o022)


def filter_calls(refused, new_namespaces):
    """A seccomp filter: (number, errno) of refused calls; clone(2) is refused with any flag of `new_namespaces`."""
    def statement(code, value, yes=0, no=0):
        return struct.pack("HBBI", code, yes, no, value)
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000
    program = statement(load, 0)
    for number, error in refused:
        program += statement(equal, number, 0, 1) + statement(give, refuse | error)
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    program += statement(equal, clone, 0, 3) + statement(load, 16)  # the flags, clone's first argument
    program += statement(any_bit, new_namespaces, 0, 1) + statement(give, refuse | 1) + statement(give, allow)
    buffer = ctypes.create_string_buffer(program)
    whole = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if LIBC.prctl(22, ctypes.c_ulong(2), whole, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:  # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp")


def forbid_namespaces():
    """As in a container of an engine that is not privileged: no CAP_SYS_ADMIN, no user namespaces."""
    numbers = {"x86_64": (165, 272, 308), "aarch64": (40, 97, 268)}[os.uname().machine]  # mount, unshare, setns
    clone3 = 435  # its flags are out of a filter's sight
    filter_calls([(number, 1) for number in numbers] + [(clone3, 38)], 0x7E020000)
    sys_admin = 21
    LIBC.prctl(24, ctypes.c_ulong(sys_admin), 0, 0, 0)  # PR_CAPBSET_DROP
    header, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    LIBC.capget(header, sets)
    words = [word & ~(1 << sys_admin) if at < 3 else word for at, word in enumerate(struct.unpack("6I", sets.raw))]
    if LIBC.capset(header, struct.pack("6I", *words)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def entry(path, relative=None):
    """What the file APIs say of a file, as envd's EntryInfo."""
    info = os.lstat(path)
    kind = {stat.S_IFDIR: "FILE_TYPE_DIRECTORY", stat.S_IFLNK: "FILE_TYPE_SYMLINK", stat.S_IFREG: "FILE_TYPE_FILE"}
    result = {"name": os.path.basename(path) or "/", "path": path, "size": str(info.st_size),
              "mode": stat.S_IMODE(info.st_mode), "permissions": stat.filemode(info.st_mode),
              "owner": name_of(pwd.getpwuid, info.st_uid), "group": name_of(grp.getgrgid, info.st_gid),
              "mtime": info.st_mtime}
    if stat.S_IFMT(info.st_mode) in kind:
        result["type"] = kind[stat.S_IFMT(info.st_mode)]
    if stat.S_ISLNK(info.st_mode):
        result["symlinkTarget"] = os.readlink(path)
    metadata = {name.removeprefix("user.e2b."): os.getxattr(path, name, follow_symlinks=False).decode(errors="replace")
                for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.e2b.")}
    if metadata:
        result["metadata"] = metadata
    return result


def name_of(find, number):
    try:
        return find(number)[0]
    except KeyError:
        return str(number)


def do_stat(path):
    return entry(path)


def do_make_dir(path):
    if os.path.isdir(path):
        raise Refused("already_exists", f"directory already exists: {path}")
    if os.path.lexists(path):
        raise Refused("invalid_argument", f"path already exists but it is not a directory: {path}")
    os.makedirs(path)
    return entry(path)


def do_move(source, destination):
    os.lstat(source)
    os.makedirs(os.path.dirname(destination), exist_ok=True)
    os.rename(source, destination)
    return entry(destination)


def do_remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return {}


def do_list(path, depth):
    if not os.path.isdir(path):
        os.stat(path)
        raise Refused("invalid_argument", f"path is not a directory: {path}")
    entries = []
    for top, folders, files in os.walk(path):
        folders.sort()
        entries += [entry(os.path.join(top, name)) for name in sorted(folders + files)]
        if os.path.relpath(top, path).count("/") + (top != path) >= depth - 1:
            folders.clear()
    return entries


def do_permissions(path, mode=None, owner=None, group=None):
    if mode:
        os.chmod(path, int(mode, 8))
    if owner or group:
        shutil.chown(path, owner or None, group or None)
    return {}


def do_read(path):
    """The bytes go to standard output after the answer."""
    if os.path.isdir(path):
        raise Refused("invalid_argument", f"path '{path}' is a directory")
    file = open(path, "rb", buffering=0)
    size = os.fstat(file.fileno()).st_size

    def copy():
        left = size
        while left and (piece := file.read(min(left, PIECE))):
            left -= len(piece)
            write_all(1, piece)
    return entry(path) | {"size": str(size)}, copy


def do_write(path, metadata=None, mode=None):
    """The bytes come from standard input, all of them before the answer."""
    if os.path.isdir(path):
        raise Refused("invalid_argument", f"path '{path}' is a directory")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        while piece := os.read(0, PIECE):
            file.write(piece)
    if mode:
        os.chmod(path, int(mode, 8))
    for name in os.listxattr(path):
        if name.startswith("user.e2b."):
            os.removexattr(path, name)
    for key, value in (metadata or {}).items():
        os.setxattr(path, f"user.e2b.{key}", value.encode())
    return entry(path)


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


def do_run(answer, argv, env, cwd, pty=None):
    """Does not return if the program starts."""
    program = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=env.get("PATH", PATH))
    if not os.path.isdir(cwd):
        raise Refused("invalid_argument", f"cwd '{cwd}' does not exist")
    os.chdir(cwd)
    if not program or not os.access(program, os.X_OK) or os.path.isdir(program):
        raise Refused("invalid_argument", f"exec: \"{argv[0]}\": executable file not found in $PATH")
    passed = []
    if pty:
        leader, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", pty["rows"], pty["cols"], 0, 0))
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(terminal, number)
        passed = [leader]
    socket.send_fds(answer, [json.dumps({"ok": {"pid": os.getpid()}}).encode() + b"\n"], passed)
    for number in passed:
        os.close(number)
    os.closerange(3, 64)
    os.execve(program, argv, env)


def become(user):
    account = pwd.getpwnam(user)
    os.setgroups([account.pw_gid])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def serve(answer, streams, cgroup):
    """In a child: one request."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    request = json.loads(answer.makefile("rb").readline())
    operation, then = request.pop("do"), None
    try:
        os.setsid()
        if operation == "run":
            os.write(cgroup, b"0")
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        become(request.pop("user"))
        os.umask(0o022)
        if operation == "run":
            do_run(answer, **request)
        result = globals()[f"do_{operation}"](**request)
        if isinstance(result, tuple):
            result, then = result
        line = {"ok": result}
    except Refused as error:
        line = {"code": error.args[0], "message": error.args[1]}
    except KeyError as error:
        line = {"code": "unauthenticated", "message": f"no such user: {error}"}
    except FileNotFoundError as error:
        line = {"code": "not_found", "message": f"path '{error.filename}' does not exist"}
    except OSError as error:
        code = {13: "permission_denied", 1: "permission_denied", 28: "resource_exhausted", 40: "failed_precondition"}
        line = {"code": code.get(error.errno, "internal"), "message": str(error)}
    answer.sendall(json.dumps(line).encode() + b"\n")
    if then:
        then()


def reap(answers):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        answer = answers.pop(pid, None)
        if answer is None:
            continue  # an orphan of the machine
        code = os.waitstatus_to_exitcode(status)
        try:
            answer.sendall(json.dumps({"code": max(code, -1), "signal": max(-code, 0)}).encode() + b"\n")
        except OSError:
            pass  # nobody waits for it
        answer.close()


def main():
    root, user, control, cgroup = sys.argv[1], sys.argv[2], socket.socket(fileno=int(sys.argv[3])), int(sys.argv[4])
    groups, plain = json.loads(sys.argv[5]), sys.argv[6:] == ["plain"]
    raise_loopback()
    socket.sethostname("machine")
    join_groups(groups)
    make_root(root, user, groups, plain)
    if plain:
        forbid_namespaces()
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    answers = {}
    control.sendall(b"r")
    while True:
        ready = select.select([control, wake], [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
            reap(answers)
        if control not in ready:
            continue
        message, numbers, _, _ = socket.recv_fds(control, 1, 4)
        if not message:
            return
        answer = socket.socket(fileno=numbers[0])
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                serve(answer, numbers[1:], cgroup)
            finally:
                os._exit(127)
        answers[pid] = answer
        for number in numbers[1:]:
            os.close(number)


if __name__ == "__main__":
    main()
