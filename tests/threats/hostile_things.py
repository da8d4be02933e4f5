"""Hostile things in a tree, by an agent or by a broken store: programs that run in a directory of the agent.

Each is a Python source that host root runs in the upper directory of a workspace, for the most hostile tree possible.
`CANARY` is a host file that must never be opened through any of them, `SIZE` is the size of the large ones.
"""

PRELUDE = """
import ctypes, os, socket, stat, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def put(name, data=b"x"):
    with open(name, "wb") as file:
        file.write(data)
def replace(name, make):
    if os.path.isdir(name) and not os.path.islink(name):
        import shutil
        shutil.rmtree(name)
    elif os.path.lexists(name):
        os.unlink(name)
    make(name)
# Names that host code knows: of git, of the agent's settings, and files of the commit.
NAMES = ["README.md", ".gitignore", ".gitattributes", ".gitmodules", "src/a.txt", ".git/config", ".git/index", ".git/packed-refs.new", ".git/HEAD.new",
         ".git/.HEAD.moorage-new", ".git/.packed-refs.moorage-new", ".git/info/exclude", ".git/objects/info/alternates", "hostile"]
os.makedirs(".git/info", exist_ok=True)
os.makedirs(".git/objects/info", exist_ok=True)
os.makedirs("src", exist_ok=True)
TOP = os.open(".", os.O_RDONLY)
def give():
    # Owned by the agent's user: files of other owners are not archived, which would hide later steps from the test.
    os.fchdir(TOP)
    subprocess.run(["chown", "-hR", "1900001000:1900001000", "."], stderr=subprocess.DEVNULL)
def everywhere(make):
    for name in NAMES:
        replace(name, make)
"""

THINGS = {
    "fifo": "everywhere(os.mkfifo)",
    "socket": "everywhere(lambda name: socket.socket(socket.AF_UNIX).bind(name))",
    "device": "everywhere(lambda name: os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(1, 3)))",
    "link to a file": "everywhere(lambda name: os.symlink(CANARY, name))",
    "link to a directory": "everywhere(lambda name: os.symlink(os.path.dirname(CANARY), name))",
    "link in the middle": "for d in ('src', '.git/info', '.git/objects', 'way'):\n    replace(d, lambda name: os.symlink(os.path.dirname(CANARY), name))",
    "magic link": "targets = iter(['/proc/self/root' + CANARY, '/proc/self/fd/0', '/proc/1/cwd', '/proc/self/exe', '/proc/self/environ'] * 3)\n"
                  "everywhere(lambda name: os.symlink(next(targets), name))",
    "hard links": "put('one')\nfor n in range(min(SIZE, 30000)):\n    os.link('one', f'link{n}')",
    "many names": "os.makedirs('many')\nfor n in range(SIZE):\n    os.mknod(f'many/{n}')",
    "many ignored names": "put('.gitignore', b'many/\\n')\nos.makedirs('many')\nfor n in range(SIZE):\n    os.mknod(f'many/{n}')",
    "depth": "give()\nos.setegid(1900001000)\nos.seteuid(1900001000)\nfor n in range(5000):\n    os.mkdir('d')\n    os.chdir('d')\nput('bottom')",
    "long names": "os.makedirs('long')\nos.chdir('long')\nfor n in range(40):\n    put(chr(97 + n % 26) * 254 + str(n % 10))\n    os.mkdir('d' * 255)\n    os.chdir('d' * 255)",
    "odd names": "for name in (b'a\\nb', b'\\x1b]0;owned\\x07', b'\\x1b[2J', b'\\xff\\xfe', b'-rf', b'--', b' ', b'...', b'\\\\', b'\"', b'$(reboot)', b'a\\tb', b'\\x7f', b'x (deleted)'):\n"
                 "    put(name)\n    os.makedirs(b'dir/' + name)\n    put(b'dir/' + name + b'/' + name)",
    "immutable": "put('fixed')\nos.makedirs('fixed.d/below')\nput('fixed.d/file')\nput('grows')\ngive()\nsubprocess.run(['chattr', '+i', 'fixed', 'fixed.d'], check=True)\n"
                 "subprocess.run(['chattr', '+a', 'grows'], check=True)",
    "sparse": "fd = os.open('sparse', os.O_CREAT | os.O_RDWR)\nfor bits in range(63, 40, -1):\n    try:\n        os.ftruncate(fd, 2**bits - 4096)\n        break\n    except OSError:\n        pass\n"
              "os.pwrite(fd, b'end', os.fstat(fd).st_size - 3)\nreplace('README.md', lambda name: os.link('sparse', name))",
    "attributes": "put('attributed')\nos.makedirs('attributed.d')\nfor path in ('attributed', 'attributed.d'):\n    try:\n        for n in range(5000):\n            os.setxattr(path, f'user.n{n}', b'v' * 20)\n"
                  "    except OSError:\n        pass\n"
                  # On file systems that allow so many attributes per file: 64 MB.
                  "put('weighty')\ntry:\n    for n in range(4000):\n        os.setxattr('weighty', f'user.w{n}', b'v' * 16000)\nexcept OSError:\n    pass",
    "marks of overlays": "for n, (mark, value) in enumerate([('redirect', b'/../../../etc'), ('redirect', b'../..'), ('redirect', b'/src'), ('redirect', b'x' * 250), ('opaque', b'y'),\n"
                         "        ('opaque', b'x'), ('opaque', b'?'), ('metacopy', b''), ('origin', b'\\0' * 30), ('impure', b'y'), ('nlink', b'U+1'), ('whiteout', b'')]):\n"
                         "    for space in ('trusted', 'user'):\n"
                         "        os.makedirs(f'marked{n}{space}/below')\n        put(f'marked{n}{space}/file')\n        put(f'marked{n}{space}.f')\n"
                         "        for path in (f'marked{n}{space}', f'marked{n}{space}.f'):\n            os.setxattr(path, f'{space}.overlay.{mark}', value)",
    "access lists": "put('listed')\nos.makedirs('listed.d')\nentries = [(1, 7, 0xffffffff)] + [(2, 7, 1900001000 + n) for n in range(100)] + [(4, 7, 0xffffffff), (16, 7, 0xffffffff), (32, 0, 0xffffffff)]\n"
                    "value = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries)\n"
                    "os.setxattr('listed', 'system.posix_acl_access', value)\nos.setxattr('listed.d', 'system.posix_acl_default', value)",
    "setgid": "os.makedirs('group/below')\nput('program', b'#!/bin/sh\\nid\\n')\ngive()\nos.chown('program', 1900000000, 1900000000)\nos.chmod('program', 0o6777)\nos.chmod('group', 0o7777)\nos.chmod('group/below', 0o3000)",
    "no permissions": "os.makedirs('closed/below')\nput('closed/file')\nput('shut')\nos.chmod('shut', 0)\nos.chmod('closed/file', 0)\nos.chmod('closed', 0)",
    "large ignores": "stars = (b'*a' * 500 + b'\\n') * max(4, min(200, SIZE // 5000))\nfor d in ('.', 'x', 'x/y'):\n    os.makedirs(d, exist_ok=True)\n    put(d + '/.gitignore', stars + b'*/' + b'?a*' * 340000 + b'\\n')\n"
                     "path = 'x/y'\nwhile len(path) < 3900:\n    path += '/' + 'a' * 200\nos.makedirs(path)\nfor n in range(20):\n    put(f'{path}/{n}aaaaaa')",
    # Just below the size limit for such files: as rules, 64 of them would take 4 GB.
    "large attributes": "for d in ['.'] + [f'a{n}' for n in range(64)]:\n    os.makedirs(d, exist_ok=True)\n    put(d + '/.gitattributes', b'a text\\n' * 149000)\n    put(d + '/file')\nput('README.md', b'more')",
    # Each rule takes milliseconds per file: hours in total.
    "slow attributes": "put('.gitattributes', (b'*a' * 500 + b' text\\n') * 900)\nos.makedirs('slow')\nfor n in range(min(SIZE, 20000)):\n    os.mknod('slow/' + 'a' * 240 + str(n))\nput('README.md', b'more')",
    # 33.5 million lines, each 165 bytes in a text diff; and smaller files that are still too large.
    "many lines": "put('lines', b'\\n' * (32 << 20))\nput('words', b''.join(b'%d\\n' % n for n in range(900000)))\nput('README.md', b'a\\n' * (4 << 20))\nput('src/a.txt', b'b\\n' * 200000)",
}

# While it runs, four names swap places forever: between a check and an open the file changes.
SWAPPED = """
os.makedirs("d", exist_ok=True); put("d/" + os.path.basename(CANARY), b"inside")
put("f", b"inside"); os.mkfifo("p"); os.symlink(os.path.dirname(CANARY), "l")
give()
while True:
    for a, b in (("d", "l"), ("f", "p"), ("l", "f"), ("p", "d"), ("README.md", "f")):
        libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
"""

SWAPPED_NAME = "swapped while it is read"
# Used in every check, within a minute; MOORAGE_TEST_LONG=1 uses all.
SHORT = ("fifo", "link to a directory", "many names", "depth", "marks of overlays", SWAPPED_NAME)
