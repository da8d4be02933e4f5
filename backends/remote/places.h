// Where the sandboxes of one remote backend are: a pool of hosts (or one account of a provider),
// and a note on disk for each machine that may exist. A note is durable before the machine is
// touched and goes only when nothing is left there, so after a kill every machine is known. Safe
// from several threads. Does not speak with any machine.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/wire/link_config.h"

namespace moorage::backends {

struct PlaceOptions {
  std::string name;  // a host's; for a provider that of its backend
  uint32_t most = 0;
  std::string made_of{};  // a machine that is kept is used again only if this is the same
};

struct PlaceUse {
  std::string name{};
  uint32_t used = 0;    // machines that may exist, including those given up, but not paused ones
  uint32_t paused = 0;  // kept for the next sandbox of a workspace
  uint32_t most = 0;
  int64_t last_contact_wall_ms = 0;  // since this process began; 0: none
  std::string last_error{};          // of the last try; empty: it succeeded, or there was none
  std::string on_stop{};             // of a provider: "pause" or "kill"
  std::string not_paused{};          // why the last stop could not pause; empty: it could
  uint64_t sent_again = 0;           // files that the last machine had lost in its pause
  // Of its last sandbox (LinkStatus); an empty overlay: none, likewise.
  std::string overlay{};
  std::vector<std::string> limits{};
  bool root_inside = false;
};

struct MachineNote {
  std::string sandbox{};  // "moorage-<store>-sb_7"
  std::string driver{};   // "ssh"; empty: the note cannot be read, see `problem`
  std::string place{};
  uint64_t generation = 0;
  std::string workspace{};  // its id
  // The sandbox that made the machine, of which it has the labels; empty: this one.
  std::string machine{};
  uint64_t machine_generation = 0;
  std::string made_of{};  // as its place had it (PlaceOptions)
  // The sandbox has ended. Its machine is paused, empty but for base trees, and waits for the
  // workspace's next sandbox, whose note then takes the place of this one.
  bool kept = false;
  std::string problem{};

  const std::string& machine_name() const { return machine.empty() ? sandbox : machine; }
};

// All notes in DIRECTORY, of every driver, in the order of their names. A missing directory has
// none.
std::vector<MachineNote> list_notes(const std::string& directory);
// Durable; a missing note is fine. Only when nothing of the sandbox is left on its machine.
void remove_note(const std::string& directory, const std::string& sandbox);

class Places {
 public:
  // Reads the notes of this driver. The directory is made for the first one.
  Places(std::string directory, std::string driver, std::vector<PlaceOptions> places);
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  // Chooses the named place, or the one with most room (those that failed last come last), and
  // writes the note. Again for the same sandbox: the place that it has, with the new generation.
  // Throws not_found: no such place; resource_exhausted: full; conflict: it has another place.
  // A machine that is kept for this workspace is taken over, with its note.
  MachineNote take(const std::string& sandbox, uint64_t generation, const std::string& place,
                   const std::string& workspace = {});
  std::optional<MachineNote> find(const std::string& sandbox) const;
  std::vector<MachineNote> notes() const;  // of this driver, also of places no longer configured
  void release(const std::string& sandbox);
  bool may_keep(const std::string& sandbox) const;  // as many may be paused as may be used
  void keep(const std::string& sandbox);
  // Of the sandbox that has the machine which this one made.
  std::string owner_of(const std::string& machine) const;
  void not_paused(const std::string& place, const std::string& why);

  void succeeded(const std::string& place, int64_t wall_ms);
  void failed(const std::string& place, const std::string& error);
  void resumed(const std::string& place, uint64_t sent_again);
  void learned(const std::string& place, const base::LinkStatus& status);
  std::vector<PlaceUse> uses() const;  // in the order of the configuration

 private:
  MachineNote reserve(const MachineNote& wanted, std::optional<MachineNote>& taken_over);
  void drop_doubles();
  void sort_out_kept();
  const PlaceUse& choose(const std::string& place) const;
  [[noreturn]] void refuse_unknown(const std::string& place) const;
  uint32_t used(const std::string& place) const;
  uint32_t kept(const std::string& place) const;

  const std::string directory_;
  const std::string driver_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> made_of_;  // by place
  std::vector<PlaceUse> places_;                // `used` is counted when asked
  std::map<std::string, MachineNote> notes_;    // by sandbox
};

}  // namespace moorage::backends
