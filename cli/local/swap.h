// Replaces, adds and removes several files of a directory, all of them or none. New files wait in a
// directory beside them, old ones are moved there. If the program is killed, the next Swap of the
// same directory moves the old ones back, by a plan that is kept elsewhere: whoever wrote the files
// of the directory could have written a plan there, too.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"

namespace moorage::cli {

class Swap {
 public:
  // Undoes what an earlier one left half done. plans: a directory of the caller alone, made if
  // missing.
  Swap(const std::string& directory, const std::string& plans);
  ~Swap();  // removes its waiting files; undoes what was not committed
  Swap(Swap&&) = delete;

  int directory() const { return directory_.get(); }
  // A new, empty place for a waiting file or for notes: an absolute path.
  std::string place(const std::string& name) const { return waiting_path_ + "/" + name; }

  struct Step {
    std::string path;                     // relative
    std::string waiting;                  // name of its new file or link; empty: it is removed
    std::optional<struct stat> expected;  // the old one; unset: absent
  };
  // Throws conflict if an old file is not as expected, and io; then everything is undone.
  void commit(const std::vector<Step>& steps);

 private:
  void move(const std::vector<Step>& steps);
  void remove(const Step& step, size_t number);
  void put(const Step& step);
  base::Fd parent_of(const std::string& path, bool make) const;
  void remove_empty_parents(const std::string& path) const;
  void undo_left() const;
  void undo(int waiting, const std::vector<std::string_view>& plan) const;
  void finish() const;
  std::string without_steps() const;

  const std::string path_;
  const base::Fd directory_;
  const std::string plan_;    // a file: records of the waiting directory, then of the steps
  std::string waiting_path_;  // made by this one
  std::string waiting_name_;
  base::Fd waiting_;
  std::string written_;  // the plan, once something may have moved
};

}  // namespace moorage::cli
