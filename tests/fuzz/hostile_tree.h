// An agent's tree, built from an input read as instructions: odd names, links that point outside,
// FIFOs, devices, whiteouts, overlay attributes. Built below one directory, without ever following
// its own links.
#pragma once

#include <string>
#include <vector>

#include "base/os/fd.h"
#include "fuzz.h"

namespace moorage::fuzz {

inline constexpr size_t kMaxSteps = 48;

// A few names repeat often, so that instructions interact; others are arbitrary bytes.
std::string any_name(Script& script);
std::string any_path(Script& script);  // absolute, relative, with "..", of such names

class HostileTree {
 public:
  explicit HostileTree(std::string path);  // recreated
  ~HostileTree();
  HostileTree(const HostileTree&) = delete;
  HostileTree& operator=(const HostileTree&) = delete;
  const std::string& path() const { return path_; }
  int fd() const { return root_.get(); }
  void grow(Script& script);  // until the script stops

 private:
  void step(Script& script);
  void set_attribute(Script& script, const std::string& path) const;

  std::string path_;
  base::Fd root_;
  std::vector<std::string> directories_{"."};  // real ones, created here
};

}  // namespace moorage::fuzz
