// Maps the command ids of an archive to their ids in this store. An agent that loops for months has
// millions, so they go into an unnamed file, 16 bytes each. An archive lists them by ascending old
// id; find() is a binary search.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/os/fd.h"

namespace moorage::workspace {

class ExecIds {
 public:
  explicit ExecIds(base::Fd file) : file_(std::move(file)) {}
  void add(base::ExecId old, base::ExecId now);  // old ids must ascend
  std::optional<base::ExecId> find(base::ExecId old);

 private:
  void flush();

  const base::Fd file_;
  uint64_t count_ = 0;  // in the file
  std::string added_;   // not yet in the file
};

}  // namespace moorage::workspace
