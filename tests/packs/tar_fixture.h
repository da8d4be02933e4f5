// Archives in memory, and all properties of a tree as lines that can be compared.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/storage_fixture.h"
#include "packs/layer_to_tar.h"
#include "packs/tar_reader.h"
#include "packs/tar_to_layer.h"
#include "workspace/archive/file.h"

namespace moorage::workspace {

inline base::Fd unnamed_file() { return base::Fd(memfd_create("unnamed", MFD_CLOEXEC)); }

inline std::string write_archive(const std::function<void(packs::ArchiveWriter&)>& fill,
                                 packs::ArchiveFacts* facts = nullptr) {
  std::string bytes;
  packs::ArchiveWriter writer({.level = 3, .threads = 1, .unnamed_file = unnamed_file},
                              [&](std::string_view piece) { bytes += piece; });
  fill(writer);
  const packs::ArchiveFacts made = writer.finish();
  if (facts) *facts = made;
  return bytes;
}

// Pieces of odd sizes, as from a socket.
inline packs::ByteSource from_memory(const std::string& bytes) {
  return [&bytes, at = size_t{0}]() mutable {
    const std::string_view piece = std::string_view(bytes).substr(at, 7919);
    at += piece.size();
    return piece;
  };
}

inline std::string archive_part(const packs::LayerPart& part,
                                packs::ArchiveFacts* facts = nullptr) {
  return write_archive([&](packs::ArchiveWriter& writer) { archive_layer_part(writer, part); },
                       facts);
}

inline packs::ArchiveFacts restore_part(const std::string& bytes, const std::string& upper,
                                        const packs::ReadLimits& limits = {}) {
  packs::ArchiveReader reader(from_memory(bytes), limits);
  packs::LayerRestorer restorer(upper, "layers/0/tree", kDiskFirstId);
  while (const packs::ArchiveEntry* entry = reader.next()) restorer.take(*entry, reader);
  restorer.finish();
  return reader.facts();
}

// A workspace that an import accepts, with one empty layer.
inline ArchiveContents empty_workspace(const std::string& upper) {
  ArchiveContents contents;
  contents.manifest.store = "0123abcd";
  auto& row = contents.manifest.workspace;
  row.id = base::WorkspaceId{1};
  row.name = "work";
  row.branch = "moorage/work";
  row.base_commit = std::string(40, 'a');
  row.policy.limits = {.memory_bytes = 1 << 30, .cpus = 1, .pids = 100};
  contents.manifest.layers = {{.id = "ly_1", .below = {}}};
  contents.pack.fd = unnamed_file();
  contents.execs.fd = unnamed_file();
  for (const std::string name : kLayerParts) {
    packs::LayerPart part;
    part.prefix = part_prefix(0, name);
    part.uppers = {upper};
    part.disk_first_id = kDiskFirstId;
    contents.parts.push_back(part);
  }
  return contents;
}

// Commands `true`, with ids from 1 on.
inline void add_execs(ArchiveContents& contents, int64_t count) {
  state_db::ExecRow row;
  row.request.argv = {"true"};
  row.request.user = "user";
  row.state = row.outcome.state = state_db::ExecState::exited;
  std::string lines;
  for (row.id.value = 1; row.id.value <= count; ++row.id.value) lines += write_exec_line(row);
  base::write_all(contents.execs.fd.get(), lines);
  contents.execs.bytes = lines.size();
}

struct TreeManifest {
  struct Options {
    bool overlay_marks = true;
    bool link_counts = true;
  };
  std::map<std::string, std::string> lines;
  std::map<std::pair<dev_t, ino_t>, std::string> first;
  Options options;

  TreeManifest(const std::string& top, Options given) : options(given) { look(top, "."); }
  explicit TreeManifest(const std::string& top) : TreeManifest(top, Options{}) {}

  void look(const std::string& top, const std::string& path) {
    const std::string full = top + "/" + path;
    struct stat status;
    base::check(lstat(full.c_str(), &status), full);
    std::string line = std::to_string(status.st_mode) + " " + std::to_string(status.st_uid) + ":" +
                       std::to_string(status.st_gid);
    const bool whiteout = S_ISCHR(status.st_mode) && status.st_rdev == 0;
    if (!whiteout) {
      line += " " + std::to_string(status.st_mtim.tv_sec) + "." +
              std::to_string(status.st_mtim.tv_nsec);
    }
    if (!S_ISDIR(status.st_mode) && !whiteout) {
      line += (options.link_counts ? " links " + std::to_string(status.st_nlink) : "") + " as " +
              first.emplace(std::pair{status.st_dev, status.st_ino}, path).first->second;
    }
    if (S_ISLNK(status.st_mode)) {
      std::string target(4096, '\0');
      target.resize(static_cast<size_t>(readlink(full.c_str(), target.data(), target.size())));
      line += " -> " + target;
    }
    if (S_ISREG(status.st_mode)) {
      line += " size " + std::to_string(status.st_size) + " data" + data_of(full);
      if (status.st_size < 64 << 20) line += " " + base::sha256_hex(base::read_file(full));
    }
    line += attributes(full);
    lines[path] = line;
    if (!S_ISDIR(status.st_mode)) return;
    for (const auto& name : base::list_directory(full)) look(top, path + "/" + name);
  }

  // The ranges with data. Block counts do not work: they include the file system's metadata, which
  // depends on when the data was written.
  static std::string data_of(const std::string& full) {
    const base::Fd file = base::open_file(full, O_RDONLY);
    std::string text;
    for (off_t at = 0; (at = lseek(file.get(), at, SEEK_DATA)) >= 0;) {
      text += " " + std::to_string(at);
      at = lseek(file.get(), at, SEEK_HOLE);
      text += "-" + std::to_string(at);
    }
    return text;
  }

  std::string attributes(const std::string& full) const {
    std::map<std::string, std::string> found;
    char names[65536];
    const ssize_t size = llistxattr(full.c_str(), names, sizeof names);
    for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(strlen(names + at)) + 1) {
      const std::string name = names + at;
      if (name == "trusted.overlay.origin" || name == "trusted.overlay.impure") continue;
      if (name.starts_with("trusted.") && !options.overlay_marks) continue;
      char value[65536];
      const ssize_t length = lgetxattr(full.c_str(), names + at, value, sizeof value);
      found[name] = std::string(value, static_cast<size_t>(length));
    }
    std::string text;
    for (const auto& [name, value] : found) text += " [" + name + "=" + base::to_hex(value) + "]";
    return text;
  }
};

}  // namespace moorage::workspace
