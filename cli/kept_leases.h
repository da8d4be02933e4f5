// The secrets of leases that this user acquired: one file each, which only the user can read,
// ~/.local/state/moorage/leases/SOCKET/ws_12.5. No command uses one unless --lease or MOORAGE_LEASE
// names it: two agents of one user must not pass for each other.
#pragma once

#include <string>

namespace moorage::cli {

class KeptLeases {
 public:
  explicit KeptLeases(const std::string& socket);

  // Throws where no secret can be kept; before the lease is acquired.
  void prepare() const;
  // Returns its short name, "ws_12.5". Earlier leases of that workspace are forgotten.
  std::string keep(const std::string& token) const;

  // The header for what --lease or MOORAGE_LEASE says: tokens, "ws_12.5", or "5", which stands for
  // every lease with that generation. What is not kept here goes to the daemon as it is, and is
  // refused there if it changes anything.
  std::string header(const std::string& named) const;

 private:
  std::string directory_;
};

}  // namespace moorage::cli
