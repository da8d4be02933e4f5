// A local file that a copy writes. It gets its name when it is complete, so a copy that fails or is
// ended leaves an existing file unchanged and nothing new.
// Written through instead, as cp does it, and as another file would lose something: a file with
// several names, a mount, or one whose owner the new one could not keep, a pipe, a device, and a
// link that the user named, such as /dev/stdout. Those are opened, and so emptied, at the first
// bytes or at the end: a copy that is refused leaves them unchanged, too. A file that replaces
// another one has none of its extended attributes and ACLs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "base/os/sparse_file.h"
#include "cli/client/remote_path.h"

namespace moorage::cli {

enum class Links { followed, not_followed };  // a link that has the name

class CopiedFile {
 public:
  // name: relative to the directory `parent`.
  CopiedFile(int parent, std::string name, Links links);
  ~CopiedFile();
  CopiedFile(CopiedFile&&) = delete;

  void write(std::string_view bytes);  // runs of zeros become holes
  void commit(const FileState& state);

 private:
  bool suits_replacing() const;
  void create_beside();
  bool takes_owner() const;
  void remove_beside();
  void open_itself();

  const std::string name_;
  Fd directory_;      // of the name, if it has one: nobody exchanges it meanwhile
  int parent_;        // of last_
  std::string last_;  // the part of the name after its directory
  const Links links_;
  const std::string beside_;  // the name of the new file, for the moment before it has its own
  bool is_beside_ = false;    // there is a new file
  bool has_name_ = false;     // it is `beside_`
  Fd fd_;
  std::optional<base::SparseFile> content_;  // empty: a pipe or device
};

// Replaces what has this name, unless it is a directory.
void create_link(int parent, const std::string& name, const std::string& target,
                 int64_t modified_ns);

void set_state(int fd, const std::string& name, const FileState& state);

}  // namespace moorage::cli
