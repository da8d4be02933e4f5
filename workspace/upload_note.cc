#include "workspace/upload_note.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "workspace/recovery_table.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;

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

std::string text_of(const std::string& note) {
  char text[PATH_MAX];
  const ssize_t size = base::check(readlink(note.c_str(), text, sizeof text), "read " + note);
  return std::string(text, static_cast<size_t>(size));
}

// Removes it through the workspace's mount, because an overlay may be mounted there.
void remove_upload(Workspaces& workspaces, const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return;
  try {
    const std::string path = text.substr(slash);
    const auto lease = workspaces.files(daemon_for(0), text.substr(0, slash), Right::write);
    if (lease.files.stat(path).type != FileType::file) return;
    lease.files.remove(path, false);
    base::log(base::LogLevel::info, "upload.swept", {{"path", text}});
  } catch (const Error& error) {
    // The transfer had just renamed the file, or the workspace is gone.
    if (error.code() != Code::not_found) throw;
  }
}

// An archived or deleted workspace has no mount: its note waits for its return.
UploadSeen look_at(Workspaces& workspaces, const std::string& note) {
  if (at_work().has(note)) return UploadSeen::at_work;
  try {
    const std::string text = text_of(note);
    const auto row =
        workspaces.find_with_deleted(daemon_for(0), text.substr(0, text.find('/')), Right::read);
    return row.state == state_db::WorkspaceState::ready ? UploadSeen::file
                                                        : UploadSeen::no_workspace;
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return UploadSeen::no_file;  // the workspace was purged
  }
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
    errno = error;
  }
  if (result < 0 && errno == ENAMETOOLONG) {
    throw Error(Code::invalid_argument, "the path is too long to write");
  }
  base::check(result, "make " + path);
  path_ = path;
}

UploadNote::~UploadNote() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  at_work().remove(path_);
}

std::vector<std::string> upload_leftovers(Workspaces& workspaces, const std::string& directory) {
  std::vector<std::string> notes;
  if (!base::path_exists(directory)) return notes;
  for (const auto& name : base::list_directory(directory)) {
    const std::string note = directory + "/" + name;
    if (decide(look_at(workspaces, note)) == Mend::undo) notes.push_back(note);
  }
  return notes;
}

void sweep_uploads(Workspaces& workspaces, const std::string& directory) {
  for (const auto& note : upload_leftovers(workspaces, directory)) {
    try {
      remove_upload(workspaces, text_of(note));
      base::check(unlink(note.c_str()), "remove " + note);
    } catch (const Error& error) {
      if (error.code() == Code::not_found) continue;  // its transfer has just ended
      base::log(base::LogLevel::warning, "upload.not_swept",
                {{"note", note}, {"error", error.message()}});
    }
  }
}

}  // namespace moorage::workspace
