// Makes the packs that go out, in a process of its own: it reads the workspace's mounts, layers and
// trees with the rights that this takes, and never sees a byte from the other machine. The worker,
// which does, gives up those rights. One job at a time, in order; its pack comes through a pipe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/wire/link_config.h"

namespace moorage::link {

struct PackJob {
  enum class Kind { tree, layers, paths, listing };
  Kind kind = Kind::tree;
  std::string path = {};                     // tree, listing (no pack): its directory
  std::string after = {};                    // tree: the last entry that is there already
  std::vector<std::string> present = {};     // tree: files below it that are there already
  std::string keep = {};                     // the whole base tree: its name in a volume, noted
  std::vector<base::LinkLayer> layers = {};  // layers: oldest first
  std::vector<std::string> paths = {};       // paths: "/workspace/a"
};

class Packer {
 public:
  // Forks; call it before the first thread and before giving up rights.
  explicit Packer(const base::LinkConfig& config);
  ~Packer();
  Packer(Packer&&) = delete;

  // The end of a pipe, non-blocking, from which the pack comes. Closing it cancels the job.
  base::Fd begin(const PackJob& job);
  // Hangs up when its process ends.
  int socket() const { return socket_.get(); }
  // Why the last job failed, if it is known. The pipe ends early then.
  std::optional<Error> failure();

 private:
  base::Fd socket_;
  pid_t pid_ = -1;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  std::optional<Error> failure_;  // of job ended_
};

}  // namespace moorage::link
