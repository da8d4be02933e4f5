// A directory for data from an untrusted sender until it is checked; removed by the destructor. The
// caller holds the mirror's lock, so only one exists; it first removes leftovers of a crash.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::repo_cache {

class Quarantine {
 public:
  explicit Quarantine(std::string path) : path_(std::move(path)) { base::remove_tree(path_); }
  ~Quarantine() {
    try {
      base::remove_tree(path_);
    } catch (const Error&) {
      // The next import removes it.
    }
  }
  Quarantine(Quarantine&&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace moorage::repo_cache
