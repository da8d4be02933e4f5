// The secrets of leases that this user acquired: one file each, which only the user can read,
// ~/.local/state/moorage/leases/SOCKET/ws_12.5. A command uses one only when --lease or
// MOORAGE_LEASE names it: two agents of one user must not use each other's lease.
#pragma once

#include <string>

namespace moorage::cli {

// Where programs of this user keep what they will need again; empty: HOME is not set.
std::string state_home();

class KeptLeases {
 public:
  explicit KeptLeases(const std::string& socket);

  // Call before the lease is acquired: throws where no secret can be saved.
  void prepare() const;
  // Returns its short name, "ws_12.5". Deletes earlier leases of that workspace.
  std::string keep(const std::string& token) const;

  // The header for the value of --lease or MOORAGE_LEASE: tokens, "ws_12.5", or "5" for every lease
  // with that generation. Leases not saved here go to the daemon unchanged; it refuses them where
  // they matter.
  std::string header(const std::string& named) const;
  // The short name of the lease saved for "ws_12"; empty: none is.
  std::string of_workspace(const std::string& id) const;

 private:
  std::string directory_;
};

}  // namespace moorage::cli
