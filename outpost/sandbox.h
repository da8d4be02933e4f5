// One sandbox's directory, and the work on it. All of its functions block: they run in an
// operation's child, one at a time (ops.lock), except where noted. Its state is in files, because
// this program may be killed at any moment:
//
//   generation               of the sandbox here; another one gets nothing
//   tree/, home/             {upper,work} of the overlays; empty/ below the home
//   before/, copied          without overlays (inside/plain.h)
//   prepared.json            the keys of what lies below, and which overlay was possible
//   init.json                process 1 (inside/process_one.h)
//   warden.sock, spool/      the warden's socket and its journals
//   applied                  the number of the last pack that was applied
//   sync.json, said/, learned/   what was sent (changes.h)
//   lost.json                what the machine lost during a pause
//   given_up                 its workspace has gone on elsewhere
//   serve.pid, serve.lock, outpost.sock, serve.log   of `serve` (serve.h)
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "outpost/directory.h"
#include "outpost/inside/process_one.h"

namespace moorage::outpost {

// What prepare gets.
struct Setup {
  std::string tree;          // key; empty: an empty tree
  std::string objects;       // key; empty: none
  std::string certificates;  // the same
  // The machine belongs to this sandbox alone: it may do without namespaces (inside/plain.h).
  bool plain = false;
  Limits limits = {};
};

class Sandbox {
 public:
  static constexpr const char* kTrial = ".trial";  // after its name: a sandbox made to try it out
  Sandbox(const Directory& directory, const std::string& name)
      : directory_(directory), path_(directory.sandbox(name)) {}

  const std::string& path() const { return path_; }
  std::string spool() const { return path_ + "/spool"; }
  std::string warden_socket() const { return path_ + "/warden.sock"; }
  std::string sync_pack() const { return path_ + "/sync.pack"; }

  // Makes the directories. Quick.
  void make() const;
  std::optional<uint64_t> generation() const;  // quick, as the next two
  void set_generation(uint64_t generation) const;
  bool prepared() const { return living(path_).has_value(); }
  bool started() const;
  std::vector<std::string> used_trees() const;  // keys
  // Its workspace has gone on elsewhere: it may run nothing more, whoever connects, and only what
  // changed here can still be fetched. Quick.
  void give_up() const;
  bool has_files() const { return setup().has_value(); }  // it was prepared, perhaps before a boot
  bool given_up() const;
  // Nothing here is synced, and a file that lost its contents in a power cut would look like a
  // change. So a sandbox ends with its machine: not_found.
  void require_same_boot() const;

  // What this machine can do for it, as JSON; tries it out if it was never prepared.
  std::string abilities() const;
  std::string prepare(const Setup& setup) const;
  // Verifies the pack, then applies it; a number that was applied already is only answered.
  std::string apply(uint64_t number, bool repairs, Fd pack) const;
  std::string start() const;
  // Writes sync_pack(): JSON {"changed":bool}.
  std::string sync(uint64_t acknowledged) const;
  // After a pause of the machine (changes.h): compares, and notes the paths that link must send.
  std::string compare(uint64_t acknowledged) const;
  std::string lost() const;  // those, as a JSON array; quick
  std::string stop(std::chrono::milliseconds grace) const;
  // Ends everything inside and removes all but serve's own files. Needs no other lock than serve's.
  std::string destroy() const;

 private:
  Fd lock() const;
  std::optional<Setup> setup() const;
  ProcessOne inside() const;  // makes it again if it has ended
  RootPlan plan(const Setup& setup, OverlayKind overlay) const;
  ProcessOne build(const Setup& setup) const;
  std::vector<OverlayKind> kinds_to_try(const Setup& setup) const;
  void make_directories(OverlayKind overlay) const;
  std::optional<OverlayKind> chosen_overlay() const;
  void kill_inside() const;

  const Directory& directory_;
  const std::string path_;
};

// Removes a tree in which a command may have left directories that its owner may not enter.
void remove_whatever(const std::string& path);

}  // namespace moorage::outpost
