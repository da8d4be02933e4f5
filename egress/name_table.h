// The addresses under which one sandbox sees the hosts it may reach: each name that was asked for
// has one of 198.18.0.0/15, which its network namespace treats as its own (docs/decisions/0360).
// The same name gets the same address in every run and after a restart, as far as possible, because
// programs remember answers; an address never changes its name while the table lives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/net/ip_address.h"

namespace moorage::egress {

class NameTable {
 public:
  // The address of the name, given to it now if it has none. Empty: the table is full.
  std::optional<base::IpAddress> address_of(const std::string& name);
  // Null: no name has the address.
  const std::string* name_at(const base::IpAddress& address) const;
  size_t size() const { return by_name_.size(); }

  // What a build with all dependencies of a large project asks for is a few hundred.
  static constexpr size_t kMaxNames = 4096;

 private:
  std::unordered_map<std::string, uint32_t> by_name_;  // the place in the range
  std::unordered_map<uint32_t, std::string> by_place_;
};

}  // namespace moorage::egress
