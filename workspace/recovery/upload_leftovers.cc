#include "workspace/recovery/upload_leftovers.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/upload_note.h"
#include "state_db/recovery_table.h"
#include "workspace/verbs/workspaces.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;

// Removes it through the workspace's mount, because an overlay may be mounted there.
void remove_upload(Workspaces& workspaces, const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return;
  try {
    const std::string path = text.substr(slash);
    const auto lease = workspaces.files(daemon_for(0), text.substr(0, slash), Right::write);
    if (lease.files.stat(path).type != layers::FileType::file) return;
    lease.files.remove(path, false);
    base::log(base::LogLevel::info, "upload.swept", {{"path", text}});
  } catch (const Error& error) {
    // The transfer had just renamed the file, or the workspace is gone.
    if (error.code() != Code::not_found) throw;
  }
}

// An archived or deleted workspace has no mount: its note waits for its return.
state_db::UploadSeen look_at(Workspaces& workspaces, const std::string& note) {
  if (layers::upload_goes_on(note)) return state_db::UploadSeen::at_work;
  try {
    const std::string text = layers::upload_note_text(note);
    const auto row =
        workspaces.find_with_deleted(daemon_for(0), text.substr(0, text.find('/')), Right::read);
    return row.state == state_db::WorkspaceState::ready ? state_db::UploadSeen::file
                                                        : state_db::UploadSeen::no_workspace;
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return state_db::UploadSeen::no_file;  // the workspace was purged
  }
}

}  // namespace

std::vector<std::string> upload_leftovers(Workspaces& workspaces, const std::string& directory) {
  std::vector<std::string> notes;
  if (!base::path_exists(directory)) return notes;
  for (const auto& name : base::list_directory(directory)) {
    const std::string note = directory + "/" + name;
    if (decide(look_at(workspaces, note)) == state_db::Repair::undo) notes.push_back(note);
  }
  return notes;
}

void sweep_uploads(Workspaces& workspaces, const std::string& directory) {
  for (const auto& note : upload_leftovers(workspaces, directory)) {
    try {
      remove_upload(workspaces, layers::upload_note_text(note));
      base::check(unlink(note.c_str()), "remove " + note);
    } catch (const Error& error) {
      if (error.code() == Code::not_found) continue;  // its transfer has just ended
      base::log(base::LogLevel::warning, "upload.not_swept",
                {{"note", note}, {"error", error.message()}});
    }
  }
}

}  // namespace moorage::workspace
