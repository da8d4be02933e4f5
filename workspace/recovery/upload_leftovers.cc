#include "workspace/recovery/upload_leftovers.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/upload_note.h"
#include "state_db/recovery_table.h"

namespace moorage::workspace {
namespace {

// Removes it through the workspace's mount, because an overlay may be mounted there.
void remove_upload(Files& files, const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return;
  try {
    const std::string path = text.substr(slash);
    const auto lease = files.open(daemon_for(0), text.substr(0, slash), Right::write);
    if (lease.files.stat(path).type != layers::FileType::file) return;
    lease.files.remove(path, false);
    base::log(base::LogLevel::info, "upload.swept", {{"path", text}});
  } catch (const Error& error) {
    // The transfer had just renamed the file, or the workspace is gone.
    if (error.code() != Code::not_found) throw;
  }
}

// An archived or deleted workspace has no mount: its note waits for its return.
state_db::UploadSeen look_at(Context& context, const std::string& note) {
  if (layers::upload_goes_on(note)) return state_db::UploadSeen::at_work;
  try {
    const std::string text = layers::upload_note_text(note);
    const auto row = find_with_deleted(context.store, daemon_for(0), text.substr(0, text.find('/')),
                                       Right::read);
    return row.state == state_db::WorkspaceState::ready ? state_db::UploadSeen::file
                                                        : state_db::UploadSeen::no_workspace;
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return state_db::UploadSeen::no_file;  // the workspace was purged
  }
}

}  // namespace

std::vector<std::string> upload_leftovers(Context& context) {
  const std::string directory = context.options.uploads();
  std::vector<std::string> notes;
  for (const auto& name : base::list_directory_if_exists(directory)) {
    const std::string note = directory + "/" + name;
    if (decide(look_at(context, note)) == state_db::Repair::undo) notes.push_back(note);
  }
  return notes;
}

void sweep_uploads(Context& context, Files& files) {
  for (const auto& note : upload_leftovers(context)) {
    try {
      remove_upload(files, layers::upload_note_text(note));
      base::check(unlink(note.c_str()), "remove " + note);
    } catch (const Error& error) {
      if (error.code() == Code::not_found) continue;  // its transfer has just ended
      base::log(base::LogLevel::warning, "upload.not_swept",
                {{"note", note}, {"error", error.message()}});
    }
  }
}

}  // namespace moorage::workspace
