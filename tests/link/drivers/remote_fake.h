// A fake provider of tests/remote as a process of its own, and a driver for it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/os/fd.h"
#include "link/driver.h"

namespace moorage::link_test {

class RemoteFake {
 public:
  explicit RemoteFake(std::string provider);  // "e2b" or "daytona"
  // Started once for all tests, without the faults and machines of the test before.
  static const RemoteFake& shared(const std::string& provider);
  ~RemoteFake();

  // `more`: settings besides the URL, as `"name":value,...`. `tree`: the key of a base tree.
  std::unique_ptr<link::Driver> driver(const std::string& more = "",
                                       const std::string& tree = "") const;
  // Requests of faults.py: "faults", "set", "die".
  void control(const std::string& what, const std::string& json) const;
  std::string requests() const;  // JSON of all that were received
  std::string api() const { return provider_ == "e2b" ? "" : "/api"; }

 private:
  const std::string provider_;
  pid_t pid_ = -1;
  Fd input_;  // it ends at its end
  std::string url_;
  std::string key_;
};

}  // namespace moorage::link_test
