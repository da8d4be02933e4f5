#include "outpost/inside/etc.h"

namespace moorage::outpost {

const std::vector<TextFile>& text_files() {
  static const std::vector<TextFile> files = {
      {"etc/passwd",
       "root:x:0:0:root:/root:/bin/bash\n"
       "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
       "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
       "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
       "user:x:1000:1000:user:/home/user:/bin/bash\n"
       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
      {"etc/group",
       "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\nsudo:x:27:user\n"
       "utmp:x:43:\nstaff:x:50:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n"},
      {"etc/hostname", "sandbox\n"},
      {"etc/hosts",
       "127.0.0.1 localhost sandbox\n::1 localhost sandbox ip6-localhost ip6-loopback\n"},
      {"etc/host.conf", "multi on\n"},
      {"etc/nsswitch.conf",
       "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
       "protocols: files\nservices: files\nethers: files\nrpc: files\n"},
      {"etc/resolv.conf", "nameserver 127.0.0.53\n"},
      {"etc/fstab", ""},
      {"etc/environment", ""},
      {"etc/gitconfig", "[safe]\n\tdirectory = *\n"},
      {"etc/shells", "/bin/sh\n/bin/bash\n/usr/bin/bash\n"},
      {"etc/profile",
       "export PATH=\"${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}\"\n"
       "[ -z \"$BASH_VERSION\" ] || [ ! -r /etc/bash.bashrc ] || . /etc/bash.bashrc\n"},
      {"etc/bash.bashrc",
       "[ -z \"$PS1\" ] && return\nshopt -s checkwinsize\nPS1='\\u@\\h:\\w\\$ '\n"},
  };
  return files;
}

const std::vector<const char*>& shown_etc() {
  static const std::vector<const char*> names = {
      "alternatives",    "ca-certificates", "ca-certificates.conf",
      "crypto-policies", "debian_version",  "fonts",
      "inputrc",         "java-11-openjdk", "java-17-openjdk",
      "java-21-openjdk", "ld.so.cache",     "ld.so.conf",
      "ld.so.conf.d",    "localtime",       "login.defs",
      "magic",           "magic.mime",      "maven",
      "mime.types",      "os-release",      "perl",
      "pki/ca-trust",    "pki/tls/certs",   "protocols",
      "python3",         "python3.11",      "python3.12",
      "python3.13",      "services",        "ssl/certs",
      "ssl/openssl.cnf", "terminfo",        "timezone"};
  return names;
}

}  // namespace moorage::outpost
