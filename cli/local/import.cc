#include "cli/local/import.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/os/files.h"
#include "cli/local/bundle.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

std::vector<std::string> tips_of_daemon(Context& context, const std::string& target) {
  try {
    return Json::parse(context.api().get(target)).texts("tips");
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return {};  // the first import of this directory
  }
}

std::string upload(Context& context, const std::string& target, const LocalBundle::Written& bundle,
                   Progress& progress) {
  const Fd file = base::open_file(bundle.path, O_RDONLY);
  const std::string what = "read " + bundle.path;
  const auto size = static_cast<uint64_t>(base::check(::lseek(file.get(), 0, SEEK_END), what)) -
                    bundle.body_offset;  // the header is sent from memory and not counted
  base::check(::lseek(file.get(), static_cast<off_t>(bundle.body_offset), SEEK_SET), what);
  size_t header_sent = 0;
  uint64_t sent = 0;
  return context.api().upload("POST", target, [&](char* buffer, size_t room) -> size_t {
    if (header_sent < bundle.header.size()) {
      const size_t copied = bundle.header.copy(buffer, room, header_sent);
      header_sent += copied;
      return copied;
    }
    const ssize_t got = base::check(::read(file.get(), buffer, room), what);
    sent += static_cast<uint64_t>(got);
    progress.update("upload", static_cast<int64_t>(size == 0 ? 100 : sent * 100 / size),
                    format_size(sent) + " of " + format_size(size));
    return static_cast<size_t>(got);
  });
}

}  // namespace

ImportedTree import_directory(Context& context, const std::string& directory, Progress& progress) {
  progress.update("read", -1, directory);
  LocalBundle local(directory);
  const std::string target = "/v1/repos/import?label=" + percent_encode(local.top(), true);
  const std::vector<std::string> tips =
      tips_of_daemon(context, target);  // also checks that the daemon answers
  local.commit();
  const LocalBundle::Written bundle = local.write(tips);
  const Json answer = Json::parse(upload(context, target, bundle, progress));
  progress.finish();
  for (const std::string& note : local.notes()) context.note(note);
  ImportedTree tree{answer.is_object("repo") ? answer.text("repo.id") : answer.text("repo"),
                    answer.text("head_commit", local.head_commit()),
                    answer.text("work_commit", local.work_commit())};
  if (tree.head_commit != local.head_commit() || tree.work_commit != local.work_commit()) {
    throw Error(Code::corrupted, "the daemon received other commits than were sent");
  }
  return tree;
}

}  // namespace moorage::cli
