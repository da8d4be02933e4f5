// `rescue export`: saves a workspace from the disk to a local file while the daemon is in rescue
// mode. A partial file stays, because it may be the only copy.
#include <fcntl.h>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct ExportOptions {
  std::string name;
  std::string file;
};

int run(Context& context, const ExportOptions& options) {
  Fd file;
  uint64_t bytes = 0;
  try {
    context.api().download(
        "/v1/rescue/workspaces/" + percent_encode(options.name), [&](std::string_view piece) {
          if (!file) {
            file = base::open_file(options.file, O_WRONLY | O_CREAT | O_EXCL, 0600);
          }
          base::write_all(file.get(), piece);
          bytes += piece.size();
        });
    if (file) base::sync_file(file.get(), options.file);
  } catch (Error& error) {
    if (bytes > 0) {
      error.add_context(options.file + " has only the first " + format_size(bytes) + " of " +
                        options.name);
    }
    throw;
  }
  if (context.json) {
    context.print_json(
        JsonObject().add("file", options.file).add("bytes", static_cast<int64_t>(bytes)).str());
    return 0;
  }
  context.print(printable(options.name) + " is in " + printable(options.file) + ", " +
                format_size(bytes) + "\nlist it: tar --zstd --warning=no-unknown-keyword -tf " +
                printable(join_command({options.file})) +
                "\nif some parts could not be read, missing.txt inside lists them\n");
  return 0;
}

}  // namespace

Action rescue_export_command(Options& options) {
  auto rescue = std::make_shared<ExportOptions>();
  options.argument({"NAME", "", "Name or id of the workspace"}, rescue->name);
  options.argument({"FILE", "", "The archive to write (.tar.zst)"}, rescue->file);
  return [rescue](Context& context) { return run(context, *rescue); };
}

}  // namespace moorage::cli
