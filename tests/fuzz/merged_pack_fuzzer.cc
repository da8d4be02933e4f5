// A pack of merged changes from another machine, applied to a directory with links that lead out of
// it. The first byte selects: the input is the changes of a pack whose frames are right, the whole
// pack, or instructions for the writer. Nothing may be created or changed outside, and no device
// made. The resulting tree can be found and sent on.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/little_endian.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "fuzz.h"
#include "packs/merged/applier.h"
#include "packs/merged/finder.h"

namespace moorage {
namespace {

namespace fs = std::filesystem;
using namespace packs;

constexpr uint32_t kFirstId = 1'900'000'000;

std::string framed(std::string_view changes) {
  std::string bytes;
  const auto frame = [&bytes](std::string_view text) {
    Compressor compressor(1, 1, [&](std::string_view piece) { bytes += piece; });
    compressor.add(text);
    return compressor.finish().bytes;
  };
  const uint64_t changes_bytes = frame(changes);
  const uint64_t list_bytes = frame("");
  bytes += "moorage pack 1\n";
  base::append_number(bytes, changes_bytes);
  base::append_number(bytes, list_bytes);
  return bytes;
}

std::string any_path(fuzz::Script& script) {
  constexpr const char* kNames[] = {"tree", "home", "a",       "b", "dir",
                                    "out",  "..",   "objects", "",  "."};
  std::string path = script.byte() & 7 ? "tree" : "home";
  for (size_t parts = script.below(4); parts > 0; --parts)
    path += std::string("/") + kNames[script.below(std::size(kNames))];
  return path;
}

void one_entry(fuzz::Script& script, PackWriter& pack) {
  Node node;
  node.path = any_path(script);
  node.type = static_cast<NodeType>(script.below(8));
  node.mode = (script.byte() << 6 | script.byte()) & 017777;
  node.uid = script.byte() & 3 ? 1000 : script.byte() << 12;
  node.target = node.type == NodeType::hard_link ? any_path(script) : std::string(script.piece());
  node.size = script.byte();
  if (script.byte() & 1)
    node.attributes[script.byte() & 1 ? "user.x" : std::string(script.piece())] = script.piece();
  pack.entry(node);
  if (node.type != NodeType::file) return;
  for (size_t pieces = script.below(3); pieces > 0; --pieces) {
    const uint64_t offset = script.byte();
    pack.piece(offset, std::string(1 + script.below(9), 'x'));
  }
  pack.end_pieces();
}

std::string written(fuzz::Script& script) {
  std::string bytes;
  PackWriter pack([&](std::string_view piece) { bytes += piece; });
  for (int steps = 0; steps < 64 && !script.over(); ++steps) {
    if (script.byte() & 3) {
      one_entry(script, pack);
    } else {
      pack.removal(any_path(script));
    }
  }
  pack.finish();
  return bytes;
}

ByteSource source_of(const std::string& bytes) {
  return [&bytes, at = size_t{0}]() mutable {
    const std::string_view piece = std::string_view(bytes).substr(at, 1000);
    at += piece.size();
    return piece;
  };
}

struct Place {
  std::string path;
  base::Fd tree;
  base::Fd home;

  explicit Place(const std::string& name) : path(fuzz::scratch_directory() + "/" + name) {
    base::make_directories(path + "/tree/dir");
    base::make_directories(path + "/home");
    base::write_file(path + "/tree/a", "old");
    fs::create_symlink("../../outside", path + "/tree/out");
    tree = base::open_directory(path + "/tree");
    home = base::open_directory(path + "/home");
  }
  ~Place() { base::remove_tree(path); }
  std::vector<MergedRoot> roots() const {
    const InsideOwners owners{kFirstId, 65536, {}};
    return {{"tree", tree.get(), {}, owners}, {"home", home.get(), {}, owners}};
  }
};

bool apply_to(const std::string& bytes, const Place& place) {
  MergedApplier::Options options;
  options.roots = place.roots();
  options.limits = {.entries = 1000, .bytes = 1 << 20, .path_bytes = 4000, .depth = 50};
  return !fuzz::refused([&] {
    MergedApplier applier(options);
    read_pack_stream(source_of(bytes), applier);
    applier.finish();
  });
}

void send_on(const Place& from) {
  const Place to("next");
  FinderOptions options;
  options.roots = from.roots();
  SentList none;
  std::string bytes;
  PackWriter pack([&](std::string_view piece) { bytes += piece; });
  MergedFinder(options, none).find([&]() -> PackWriter& { return pack; });
  pack.finish();
  for (int times = 0; times < 2; ++times)
    fuzz::require(apply_to(bytes, to), "a pack of our own finder is accepted, also twice");
}

void check_inside(const std::string& path) {
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    struct stat status {};
    fuzz::require(lstat(entry.path().c_str(), &status) == 0, "an entry exists");
    fuzz::require(!S_ISBLK(status.st_mode) && !S_ISCHR(status.st_mode), "no device was made");
  }
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const size_t form = script.below(3);
  std::string bytes;
  if (form == 0) bytes = framed(script.rest());
  if (form == 1) bytes = script.rest();
  if (form == 2) bytes = written(script);
  const fuzz::Secret& secret = fuzz::secret();  // beside it
  {
    const Place place("merged");
    const bool accepted = apply_to(bytes, place);
    check_inside(place.path);
    if (accepted) {
      fuzz::require(apply_to(bytes, place), "a pack can be applied twice");
      send_on(place);
    }
    fuzz::require(base::list_directory(place.path) == std::vector<std::string>{"home", "tree"},
                  "everything is below the directories");
  }
  fuzz::require(
      base::list_directory(fuzz::scratch_directory()) == std::vector<std::string>{"outside"},
      "everything is below the directory");
  fuzz::require(base::read_file(secret.path) == secret.text + "\n", "files outside are unchanged");
  return 0;
}
