#include "backends/host_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "backends/trust.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

constexpr int kMaxDepth = 8;  // /etc is trusted, but mounts might form a loop
constexpr size_t kMaxFileBytes = 4 << 20;

// Copied from the host's /etc, including subtrees. Only files that programs need to run, and no
// settings of this host.
constexpr const char* kCopied[] = {
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "login.defs",
    "magic",
    "magic.mime",
    "maven",
    "mime.types",
    "os-release",
    "perl",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
};

constexpr const char* kDirectories[] = {
    ".moorage",
    "boot",
    "dev",
    "etc",
    "etc/alternatives",
    "etc/pam.d",
    "etc/security",
    "etc/skel",
    "etc/ssl",
    "etc/sudoers.d",
    "home",
    "home/user",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "sys/devices",
    "sys/devices/system",
    "sys/devices/system/cpu",
    "sys/devices/system/node",
    "sys/fs",
    "sys/fs/cgroup",
    "tmp",
    "usr",
    "var",
    "var/cache",
    "var/lib",
    "var/lib/dpkg",
    "var/local",
    "var/log",
    "var/mail",
    "var/opt",
    "var/spool",
    "var/tmp",
    "workspace",
    ".moorage/objects",
    ".moorage/certificates",
};

struct Text {
  const char* path;
  mode_t mode;
  const char* content;
};

constexpr Text kTexts[] = {
    {".moorage/warden", 0644, ""},  // mount points
    {".moorage/bootstrap", 0644, ""},
    {"etc/passwd", 0644,
     "root:x:0:0:root:/root:/bin/bash\n"
     "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
     "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
     "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
     "man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
     "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
     "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
     "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
     "user:x:1000:1000:user:/home/user:/bin/bash\n"
     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", 0644,
     "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nman:x:12:\n"
     "mail:x:8:\nsudo:x:27:user\nwww-data:x:33:\nshadow:x:42:\nutmp:x:43:\nstaff:x:50:\n"
     "users:x:100:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hostname", 0644, "sandbox\n"},
    {"etc/hosts", 0644, kHosts},
    {"etc/host.conf", 0644, "multi on\n"},
    {"etc/nsswitch.conf", 0644,
     "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
     "protocols: files\nservices: files\nethers: files\nrpc: files\n"},
    {"etc/resolv.conf", 0644, kResolverFile},
    {"etc/fstab", 0644, ""},
    {"etc/environment", 0644, ""},
    // Root and the user, who may become root, share their repositories.
    {"etc/gitconfig", 0644, "[safe]\n\tdirectory = *\n"},
    {"etc/shells", 0644, "/bin/sh\n/bin/bash\n/usr/bin/bash\n"},
    {"etc/profile", 0644,
     "export PATH=\"${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}\"\n"
     "[ -z \"$BASH_VERSION\" ] || [ ! -r /etc/bash.bashrc ] || . /etc/bash.bashrc\n"},
    {"etc/bash.bashrc", 0644,
     "[ -z \"$PS1\" ] && return\nshopt -s checkwinsize\nPS1='\\u@\\h:\\w\\$ '\n"},
    {"etc/sudoers", 0440,
     "Defaults env_reset, !mail_badpass, !use_pty\n"
     "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
     "root ALL=(ALL:ALL) NOPASSWD: ALL\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n"},
    // Otherwise sudo complains about a resource limit it may not raise.
    {"etc/sudo.conf", 0644, "Set disable_coredump false\n"},
    // There are no passwords inside: sudoers and being root decide who may become whom.
    {"etc/pam.d/sudo", 0644,
     "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n"
     "session optional pam_permit.so\n"},
    {"etc/pam.d/su", 0644,
     "auth sufficient pam_rootok.so\nauth required pam_deny.so\naccount sufficient pam_permit.so\n"
     "session optional pam_permit.so\n"},
    {"etc/pam.d/other", 0644,
     "auth required pam_deny.so\naccount required pam_deny.so\nsession required pam_deny.so\n"},
};

// Stands for all tables above: change it when they change, so that a new image is made.
constexpr std::string_view kFormat = "host image 4";

void make_directory(const std::string& path, mode_t mode = 0755) {
  base::check(mkdir(path.c_str(), mode), "make " + path);
  base::check(chmod(path.c_str(), mode), "set the mode of " + path);
}

std::string read_link(const std::string& path) {
  char target[4096];
  ssize_t size = base::check(readlink(path.c_str(), target, sizeof target), "read link " + path);
  return std::string(target, static_cast<size_t>(size));
}

// Calls back for `path` and everything below it that any user may read, parents first.
template <typename Visit>
void walk(const std::string& path, const Visit& visit, int depth = 0) {
  struct stat info;
  if (lstat(path.c_str(), &info) < 0 || depth > kMaxDepth) return;
  const bool open_to_all = S_ISLNK(info.st_mode) || (info.st_mode & S_IROTH);
  const bool known = S_ISLNK(info.st_mode) || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
  if (!open_to_all || !known || info.st_size > static_cast<off_t>(kMaxFileBytes)) return;
  visit(path, info);
  if (!S_ISDIR(info.st_mode)) return;
  for (const std::string& name : base::list_directory(path)) {
    walk(path + "/" + name, visit, depth + 1);
  }
}

// The top-level links of a merged /usr: bin, sbin, lib, lib64...
std::vector<std::pair<std::string, std::string>> usr_links() {
  std::vector<std::pair<std::string, std::string>> links;
  for (const std::string& name : base::list_directory("/")) {
    struct stat info;
    if (lstat(("/" + name).c_str(), &info) < 0 || !S_ISLNK(info.st_mode)) continue;
    std::string target = read_link("/" + name);
    if (target.starts_with("/")) target.erase(0, 1);
    if (target.starts_with("usr/")) links.emplace_back(name, target);
  }
  return links;
}

std::string describe_host() {
  std::string description{kFormat};
  for (const Text& text : kTexts) description += std::string("\n") + text.path + text.content;
  for (const char* directory : kDirectories) description += std::string("\n") + directory;
  for (const auto& [name, target] : usr_links()) description += "\n" + name + ">" + target;
  for (const char* name : kCopied) {
    walk(std::string("/etc/") + name, [&](const std::string& path, const struct stat& info) {
      description += "\n" + path + " " + std::to_string(info.st_mode) + " " +
                     std::to_string(info.st_size) + " " + std::to_string(info.st_ino) + " " +
                     std::to_string(info.st_mtim.tv_sec) + "." +
                     std::to_string(info.st_mtim.tv_nsec);
    });
  }
  return description;
}

void copy_from_host(const std::string& root) {
  for (const char* name : kCopied) {
    walk(std::string("/etc/") + name, [&](const std::string& path, const struct stat& info) {
      const std::string place = root + path;
      if (S_ISDIR(info.st_mode)) {
        make_directory(place);
      } else if (S_ISLNK(info.st_mode)) {
        base::check(symlink(read_link(path).c_str(), place.c_str()), "link " + place);
      } else {
        base::write_file(place, base::read_file(path), 0644);
      }
    });
  }
}

// Programs read the store's authority where they read the host's.
void link_trust(const std::string& root) {
  const auto link = [&root](const std::string& place, const char* file) {
    base::make_directories(root + place.substr(0, place.rfind('/')), 0755);
    unlink((root + place).c_str());
    const std::string target = std::string(kCertificatesInside) + "/" + file;
    base::check(symlink(target.c_str(), (root + place).c_str()), "link " + place);
  };
  for (const char* place : kBundles) {
    if (place == kBundles[0] || base::path_exists(place)) link(place, kAllCertificates);
  }
  for (const char* place : kJavaStores) {
    if (std::string_view(place).starts_with("/etc/") && base::path_exists(place))
      link(place, kJavaCertificates);
  }
}

void build(const std::string& root) {
  make_directory(root);
  for (const char* directory : kDirectories) make_directory(root + "/" + directory);
  for (const char* sticky : {"tmp", "var/tmp"}) {
    base::check(chmod((root + "/" + sticky).c_str(), 01777), "set the mode of /tmp");
  }
  for (const auto& [name, target] : usr_links()) {
    base::check(symlink(target.c_str(), (root + "/" + name).c_str()), "link " + name);
  }
  for (const Text& text : kTexts) {
    base::write_file(root + "/" + text.path, text.content, text.mode);
  }
  copy_from_host(root);
  link_trust(root);
  const std::pair<const char*, const char*> links[] = {
      {"etc/mtab", "../proc/self/mounts"}, {"var/run", "../run"}, {"var/lock", "../run/lock"}};
  for (const auto& [name, target] : links) {
    base::check(symlink(target, (root + "/" + name).c_str()), std::string("link ") + name);
  }
}

}  // namespace

std::string HostImage::ensure() {
  if (usr_links().empty()) {
    throw Error(Code::unsupported, "this host's /usr is not merged",
                "install the package usrmerge, then try again");
  }
  const std::string place = directory_ + "/host/" + base::sha256_hex(describe_host()).substr(0, 32);
  const std::string root = place + "/rootfs";
  std::lock_guard lock(mutex_);
  if (base::path_exists(place)) return root;
  // Any unfinished one is stale: the store has one owner.
  const std::string unfinished = directory_ + "/host/unfinished";
  base::remove_tree(unfinished);
  base::make_directories(unfinished);
  build(unfinished + "/rootfs");
  // Once per state of the host; a power cut must not leave empty files under a finished name.
  base::sync_file_system(unfinished);
  base::rename_into_place(unfinished, place);
  return root;
}

}  // namespace moorage::backends
