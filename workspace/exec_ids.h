// The commands of an archive: their ids in it and what they became here. An agent's loop of months
// has millions, so they are in a file without a name, 16 bytes each. They come in the order of
// their old ids, as an archive has them, and are found by halving.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/ids.h"

namespace moorage::workspace {

class ExecIds {
 public:
  explicit ExecIds(base::Fd file) : file_(std::move(file)) {}
  void add(base::ExecId old, base::ExecId now);  // old: above all before it
  std::optional<base::ExecId> find(base::ExecId old);

 private:
  void flush();

  const base::Fd file_;
  uint64_t count_ = 0;  // in the file
  std::string added_;   // not yet in it
};

}  // namespace moorage::workspace
