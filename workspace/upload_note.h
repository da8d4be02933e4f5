// What is being written into a workspace's tree under a temporary name: a note in <store>/uploads,
// made before the file and removed after it, so that the next start finds what a killed daemon left
// behind. Only a name that a note has is ever removed: an agent may call its files as it likes. A
// note is a symbolic link whose text is "ws_3/workspace/src/.moorage-<32 hex digits>": name and
// text appear at once, and the journal of the file system keeps it ahead of the file without a
// sync.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace moorage::workspace {

// Where notes are made, and whose. No directory: no notes.
struct UploadNotes {
  std::string directory;
  std::string workspace;  // "ws_3"
};

class UploadNote {
 public:
  UploadNote() = default;
  // `name`: without slash, of the temporary file below `parent`, an absolute path inside that ends
  // with a slash.
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

// When the sandboxes are adopted: removes the files that the notes of no present transfer name, and
// the notes. Those of a workspace that is away (archived, deleted) wait for it.
std::vector<std::string> upload_leftovers(Workspaces& workspaces,
                                          const std::string& directory);  // their notes
void sweep_uploads(Workspaces& workspaces, const std::string& directory);

}  // namespace moorage::workspace
