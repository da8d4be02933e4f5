// A hostile tar stream, unpacked into a directory. The input is the tar: it is first put in a frame
// with a valid trailer, as otherwise no input would pass the first check. Nothing may be created
// outside of the directory.
#include <fcntl.h>
#include <sys/stat.h>

#include "base/os/files.h"
#include "fuzz.h"
#include "workspace/archive/file.h"

namespace moorage {
namespace {

constexpr uint32_t kFirstId = 1'900'000'000;

class IntoDirectory : public workspace::ArchiveVisitor {
 public:
  explicit IntoDirectory(std::string top) : top_(std::move(top)) {}
  void refs(const std::string& text) override { workspace::ref_objects(text); }
  std::optional<std::string> upper(size_t layer, const std::string& part) override {
    if (layer > 3) return std::nullopt;
    const std::string path = top_ + "/" + std::to_string(layer) + part;
    base::make_directories(path);
    return path;
  }

 private:
  std::string top_;
};

std::string framed(std::string_view tar) {
  std::string bytes;
  packs::Compressor compressor(1, 1, [&](std::string_view piece) { bytes += piece; });
  compressor.add(tar);
  compressor.finish();
  return bytes;
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const bool whole = script.byte() & 1;
  const std::string bytes = whole ? framed(script.rest()) : std::string(script.rest());
  const fuzz::Secret& secret = fuzz::secret();  // beside it
  const std::string top = fuzz::scratch_directory() + "/archive";
  base::make_directories(top);
  IntoDirectory visitor(top);
  const workspace::ReadOptions options{
      .limits = {.max_entries = 1000, .max_bytes = 64 << 20, .max_step_bytes = 1 << 20},
      .disk_first_id = kFirstId,
      .unnamed_file = {}};  // 1000 names need none
  fuzz::refused([&] {
    workspace::read_archive(
        [&bytes, at = size_t{0}]() mutable {
          const std::string_view piece = std::string_view(bytes).substr(at, 4096);
          at += piece.size();
          return piece;
        },
        options, visitor);
  });
  const std::vector<std::string> both{"archive", "outside"};
  fuzz::require(base::list_directory(fuzz::scratch_directory()) == both,
                "everything is below the directory");
  fuzz::require(base::read_file(secret.path) == secret.text + "\n", "files outside are unchanged");
  base::remove_tree(top);
  return 0;
}
