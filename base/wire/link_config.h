// The configuration of one moorage-link: backends/remote writes it to link.json in the sandbox's
// directory before it starts the keeper; moorage-link reads it. It holds no secrets.
//
// How the daemon uses a keeper:
//   /.moorage/warden keeper --bootstrap /.moorage/bootstrap --config DIRECTORY/link.json
// in a mount namespace with the host's files, in the sandbox's control group, in the host's network
// namespace, as root. It connects to the bootstrap socket as a warden does and receives its
// listening socket (warden.sock). It answers these itself, besides what it passes on to the warden
// there; errors are {"code","message","hint"} with a status other than 200, in words for the user:
//   GET  /moorage/protocol, GET /health   at once
//   POST /moorage/connect   {}            200 when the machine is reached and base tree and objects
//                                         are there; may take minutes
//   POST /moorage/begin     {"layers":[{"tree","home"}]}   oldest first. The workspace's mounts are
//                                         attached: prepare, send what the layers changed, start.
//                                         200 when the warden there answers
//   GET  /moorage/remote    -> LinkStatus
//   POST /moorage/sync      {}            200 when all changes until now are in incoming/ here
//   POST /moorage/changed   {"paths":["/workspace/a"]}     200 when applied there
//   POST /moorage/keep      {"tag","room_bytes"}, with the descriptor of a journal: that of a
//                                         command which an earlier keeper started
//   POST /moorage/follows   {"tag"}       -> {"follows": bool}: more of its journal, perhaps its
//                                         end, may still come
//   POST /moorage/network   {}            with a line (network_line.h) as its one descriptor, as a
//                                         warden takes it; or the second one of the bootstrap
//   POST /moorage/destroy   {}            200 when nothing of the sandbox is left there
//   POST /moorage/shutdown  {"grace_ms","keep"} -> {"kept","why"}   ends the commands there, syncs
//                                         for the last time, ends or pauses the machine, exits
// incoming/SEQ.pack: complete packs, SEQ in decimal and rising by one. The daemon applies them in
// order, renames each to SEQ.applied and unlinks it when it is durable.
//
// `moorage-link remove --config FILE` ends and removes a sandbox there without a keeper: exit code
// 0 once nothing is left (or never was), else the reason on standard error. link/main.cc has the
// other commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/net/provider_rules.h"

namespace moorage::base {

inline constexpr const char* kLinkConfig = "link.json";  // in the sandbox's directory
inline constexpr const char* kIncoming = "incoming";     // likewise, a directory
// Likewise, written by the link: the sandbox there has started; it is lost for good, and why. A
// keeper that ended without the latter may be replaced by one with the same configuration.
inline constexpr const char* kLinkBegun = "begun";
inline constexpr const char* kLinkGone = "gone";
inline constexpr size_t kMaxLinkGoneBytes = 1000;

// Directories over the base tree, with ids as in the mounts: raw upper directories of overlays, or
// plain ones. Either may be empty. The files below them are those of base, so these alone say which
// paths of /workspace and /home/user must be sent (packs/merged/finder.h).
struct LinkLayer {
  std::string tree;
  std::string home;
};

struct LinkTree {
  std::string key;   // [a-z0-9._-]: the same key always has the same contents; empty: none
  std::string path;  // where it is mounted here, read-only
};

struct LinkConfig {
  std::string name;       // "moorage-STORE-sb_7", also its name there
  std::string directory;  // sandboxes/sb_7 here, absolute
  uint64_t generation = 0;
  std::string driver;     // "ssh"
  std::string settings;   // its own, the text of a JSON object; for ssh SshSettings
  std::string place;      // the machine's name in our configuration, for people
  std::string key;        // path of the file that says where the provider's key is; empty: none
  uint32_t first_id = 0;  // ids in the mounts here: first_id + id inside
  std::string outpost;    // absolute paths of the programs to put there
  std::string warden;
  LinkTree base;          // the files below all layers
  LinkTree objects;       // git objects: packs come and go, the key stays
  LinkTree certificates;  // shown inside at kCertificatesInside (trust.h): nothing secret
  // Directory of the notes about base trees in a volume of the provider (link/volume/kept_tree.h);
  // empty: there is no volume.
  std::string kept_trees;
  uint32_t sync_interval_s = 10;
  uint32_t start_deadline_s = 600;
  // The whole machine belongs to this sandbox, which may do without namespaces and overlays.
  bool machine_is_ours = false;
  ProviderRules provider_rules;  // for such a machine without a network namespace
  // The earlier sandbox that made the machine: what it has was paused, and is compared. Or empty.
  std::string machine;
  uint64_t machine_generation = 0;
  uint64_t memory_bytes = 0;  // limits of all commands together; 0: none
  uint64_t pids = 0;
  double cpus = 0;
};

// Settings of driver ssh.
struct SshSettings {
  std::string host;         // its name in our configuration, for messages
  std::string destination;  // ssh's: user@host, or a Host of its configuration
  std::string config_file;  // for ssh -F; empty: ssh's own
  std::string directory;    // DIR there, "~/" is that user's home; empty: ~/.moorage
};
std::string ssh_settings_text(const SshSettings& settings);
SshSettings parse_ssh_settings(const std::string& text);  // invalid_argument

std::string link_config_text(const LinkConfig& config);
LinkConfig parse_link_config(const std::string& text);  // invalid_argument

// Where a provider's key is. The daemon replaces the file with this while links run, when the
// credential is replaced; moorage-link alone reads the key, before it speaks with the provider.
struct LinkKey {
  enum class Source {
    file,     // `place`, which only root may read
    command,  // what `place` prints, run by sh as root
    sealed,   // the file `place`, encrypted (CMS) for the key in the file `recipient`
    missing,  // there is no such credential
  };
  Source source = Source::missing;
  std::string place{};
  std::string recipient{};
  std::string credential{};  // its name, for messages; empty: a file of the configuration
};
std::string link_key_text(const LinkKey& key);
LinkKey parse_link_key(const std::string& text);  // invalid_argument

// Layers of /moorage/begin, oldest first.
std::string link_layers_text(const std::vector<LinkLayer>& layers);
std::vector<LinkLayer> parse_link_layers(const std::string& text);

// What GET /moorage/remote answers. Comes from a program that a hostile machine talks to: bounded
// when parsed.
struct LinkStatus {
  bool connected = false;
  std::string overlay;  // "root", "user", "none" there; empty: not prepared
  bool pid_namespace = false;
  bool net_namespace = false;
  bool root_inside = false;         // commands may run as root of the sandbox
  std::vector<std::string> limits;  // those of memory_bytes, pids, cpus that hold there
  std::string network;              // how its rules are held if not by the link, for people
  bool runs = false;                // the warden there answers
  uint64_t behind_ms = 0;           // age of the last complete sync; 0: none since the link started
  uint64_t last_pack = 0;           // its number; 0: none so far
  uint64_t restored = 0;  // entries that the machine lost in a pause, and that were sent again
  uint64_t kept_ms = 0;   // how long its provider was asked to keep it from now on; 0: not known
  std::string reason;     // why not connected, in words
};

std::string link_status_text(const LinkStatus& status);
LinkStatus parse_link_status(const std::string& text);  // corrupted

}  // namespace moorage::base
