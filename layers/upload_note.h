// A note in <store>/uploads for each file being written into a workspace's tree under a temporary
// name. It is created before the file and removed after it, so that the next start finds the
// leftovers of a killed daemon. Only noted names are ever removed, because an agent may use any
// file name. A note is a symbolic link with the text "ws_3/workspace/src/.moorage-<32 hex digits>":
// name and text appear at once, and the file system's journal keeps it ahead of the file without a
// sync.
#pragma once

#include <string>
#include <utility>

namespace moorage::layers {

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

// Whether the transfer of this note (its path) goes on in this process.
bool upload_goes_on(const std::string& note);
std::string upload_note_text(const std::string& note);

}  // namespace moorage::layers
