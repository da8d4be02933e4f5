#include "layers/upload_note.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::layers {
namespace {

// Paths of notes with a running transfer in this process.
class AtWork {
 public:
  void add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.insert(path);
  }
  void remove(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.erase(path);
  }
  bool has(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return paths_.contains(path);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

AtWork& at_work() {
  static auto& notes = *new AtWork;  // a transfer may end after main
  return notes;
}

}  // namespace

UploadNote::UploadNote(const UploadNotes& notes, const std::string& parent,
                       const std::string& name) {
  if (notes.directory.empty()) return;
  const std::string text = notes.workspace + parent + name;
  const std::string path = notes.directory + "/" + name.substr(name.find_first_not_of('.'));
  at_work().add(path);
  int result = symlink(text.c_str(), path.c_str());
  if (result < 0 && errno == ENOENT) {
    base::make_directories(notes.directory);
    result = symlink(text.c_str(), path.c_str());
  }
  if (result < 0) {
    const int error = errno;
    at_work().remove(path);
    if (error == ENAMETOOLONG) throw Error(Code::invalid_argument, "the path is too long to write");
    base::throw_errno("make " + path, error);
  }
  path_ = path;
}

UploadNote::~UploadNote() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  at_work().remove(path_);
}

bool upload_goes_on(const std::string& note) { return at_work().has(note); }

std::string upload_note_text(const std::string& note) {
  char text[PATH_MAX];
  const ssize_t size = base::check(readlink(note.c_str(), text, sizeof text), "read " + note);
  return std::string(text, static_cast<size_t>(size));
}

}  // namespace moorage::layers
