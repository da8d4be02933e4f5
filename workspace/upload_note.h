// A note in <store>/uploads for each file being written into a workspace's tree under a temporary
// name. It is created before the file and removed after it, so that the next start finds the
// leftovers of a killed daemon. Only noted names are ever removed, because an agent may use any
// file name. A note is a symbolic link with the text "ws_3/workspace/src/.moorage-<32 hex digits>":
// name and text appear at once, and the file system's journal keeps it ahead of the file without a
// sync.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace moorage::workspace {

// Directory and workspace of the notes. No directory: no notes.
struct UploadNotes {
  std::string directory;
  std::string workspace;  // "ws_3"
};

class UploadNote {
 public:
  UploadNote() = default;
  // `name`: the temporary file's name, without slash; `parent`: its directory, an absolute path
  // inside that ends with a slash.
  UploadNote(const UploadNotes& notes, const std::string& parent, const std::string& name);
  UploadNote(UploadNote&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  UploadNote(const UploadNote&) = delete;
  UploadNote& operator=(const UploadNote&) = delete;
  UploadNote& operator=(UploadNote&&) = delete;
  ~UploadNote();

 private:
  std::string path_;
};

class Workspaces;

// After the sandboxes are adopted: removes files noted without a running transfer, and their notes.
// Notes of an archived or deleted workspace wait for it.
std::vector<std::string> upload_leftovers(Workspaces& workspaces,
                                          const std::string& directory);  // their notes
void sweep_uploads(Workspaces& workspaces, const std::string& directory);

}  // namespace moorage::workspace
