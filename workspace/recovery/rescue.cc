#include "workspace/recovery/rescue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "packs/layer_to_tar.h"
#include "repo_cache/base_tree.h"
#include "state_db/tables/archives.h"
#include "workspace/archive/store.h"

namespace moorage::workspace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMeasureTime{10};  // for the whole list
constexpr size_t kMissingBytes = 1 << 20;

template <typename Id>
std::vector<Id> ids_in(const std::string& directory) {
  std::vector<Id> ids;
  for (const auto& name : base::list_directory_if_exists(directory)) {
    if (const auto id = Id::parse(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string layer_path(const std::string& store, base::LayerId id) {
  return store + "/layers/" + id.str();
}

// Where the base tree was checked out; it has the files of a directory that an agent renamed.
repo_cache::BaseTreePlaces base_tree_of(const std::string& store, const About& about) {
  const std::string trees = store + "/repos/" + about.repository.str() + "/trees";
  try {
    return repo_cache::base_tree_places(trees, about.base_commit);
  } catch (const Error& error) {
    const std::string tree = trees + "/" + about.base_commit + "/tree";
    if (base::path_exists(tree)) return {tree, {}};  // its manifest is damaged
    base::log(base::LogLevel::warning, "rescue.no_base_tree",
              {{"commit", about.base_commit}, {"error", error.message()}});
    return {};
  }
}

void write_journal_file(packs::ArchiveWriter& writer, const std::string& place,
                        const std::string& path) {
  const base::Fd file = base::open_file(place, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  base::check(fstat(file.get(), &status), "check " + place);
  if (!S_ISREG(status.st_mode)) return;
  if (path.ends_with("/output")) {
    writer.put_journal(path, file.get());
  } else {
    writer.put_file(path, file.get(), static_cast<uint64_t>(status.st_size));
  }
}

void write_journals(packs::ArchiveWriter& writer, const std::string& directory,
                    const packs::PassOver& pass_over) {
  const auto attempt = [&](const std::string& path, const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      pass_over(path, error);
      writer.fill();
    }
  };
  std::vector<base::ExecId> execs;
  attempt("journal", [&] { execs = ids_in<base::ExecId>(directory); });
  for (const auto& exec : execs) {
    const std::string place = directory + "/" + exec.str();
    const std::string path = "journal/" + exec.str();
    std::vector<std::string> names;
    attempt(path, [&] { names = base::list_directory(place); });
    for (const auto& name : names) {
      const std::string file = path + "/" + name;
      attempt(file, [&] { write_journal_file(writer, place + "/" + name, file); });
    }
  }
}

// Of a part of a layer and of those below it; empty if the layer itself lacks the part.
std::vector<std::string> uppers_of(const std::string& store, std::span<const base::LayerId> layers,
                                   const std::string& name) {
  std::vector<std::string> uppers;
  for (const auto layer : layers) {
    const std::string upper = layer_path(store, layer) + "/" + name + "/upper";
    if (base::path_exists(upper)) {
      uppers.push_back(upper);
    } else if (uppers.empty()) {
      break;
    }
  }
  return uppers;
}

// The parts missing from an export, one per line.
class Missing {
 public:
  void add(const std::string& path, const Error& error) {
    ++count_;
    if (lines_.size() >= kMissingBytes) return;
    const std::string shown = base::escape_for_message(path);
    if (!error.message().starts_with(shown)) lines_ += shown + ": ";
    lines_ += error.message() + "\n";
    ++listed_;
  }
  uint64_t count() const { return count_; }
  std::string text() const {
    if (listed_ == count_) return lines_;
    return lines_ + "and " + std::to_string(count_ - listed_) + " more\n";
  }

 private:
  std::string lines_;
  uint64_t count_ = 0;
  uint64_t listed_ = 0;
};

}  // namespace

std::vector<RescuedWorkspace> Rescue::look() {
  const auto on_disk = ids_in<base::LayerId>(options_.store + "/layers");
  const std::set<base::LayerId> there(on_disk.begin(), on_disk.end());
  std::set<base::LayerId> named;
  std::vector<RescuedWorkspace> all;
  for (const auto& id : ids_in<base::WorkspaceId>(options_.store + "/workspaces")) {
    RescuedWorkspace found;
    found.id = id.str();
    found.about = read_about(options_.store, id);
    if (found.about) {
      for (const auto& layer : found.about->layers) {
        (there.contains(layer) ? found.layers : found.lost_layers).push_back(layer);
        named.insert(layer);
      }
      if (!found.lost_layers.empty()) found.archive = archive_of(*found.about);
      if (!found.archive.empty()) found.lost_layers.clear();
    }
    all.push_back(std::move(found));
  }
  for (const auto& layer : on_disk) {
    if (named.contains(layer)) continue;
    RescuedWorkspace found;
    found.id = layer.str();
    found.layers = {layer};
    all.push_back(std::move(found));
  }
  return all;
}

// The newest archive named after it; empty: there is none now.
std::string Rescue::archive_of(const About& about) const {
  int64_t newest = -1;
  for (const auto& name : base::list_directory_if_exists(options_.archive_directory)) {
    const auto number = state_db::archive_number(name, about.store, about.id);
    newest = std::max(newest, number.value_or(-1));
  }
  if (newest < 0) return {};
  return options_.archive_directory + "/" +
         state_db::archive_file_name(about.store, about.id, newest);
}

// Leaves the size unset if time runs out or the disk cannot be read.
void Rescue::measure(RescuedWorkspace& found, Clock::time_point until) {
  std::vector<std::string> places;
  for (const auto& layer : found.layers) places.push_back(layer_path(options_.store, layer));
  const std::string journals = options_.store + "/workspaces/" + found.id;
  if (base::path_exists(journals)) places.push_back(journals);
  uint64_t bytes = 0;
  try {
    if (!found.archive.empty()) places.push_back(found.archive);
    for (const auto& place : places) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0) return;
      base::UsageLimits limits;
      limits.time = left;
      const auto usage = base::tree_usage(place, limits);
      if (!usage.complete) return;
      bytes += usage.bytes;
    }
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "rescue.not_measured",
              {{"id", found.id}, {"error", error.message()}});
    return;
  }
  found.bytes = bytes;
}

std::vector<RescuedWorkspace> Rescue::list() {
  auto all = look();
  const auto until = Clock::now() + kMeasureTime;
  for (auto& found : all) measure(found, until);
  return all;
}

RescuedWorkspace Rescue::find(const std::string& name) {
  std::vector<RescuedWorkspace> matches;
  for (auto& found : look()) {
    if (found.id == name) return found;
    if (found.about && found.about->name == name) matches.push_back(std::move(found));
  }
  if (matches.empty()) {
    throw Error(Code::not_found, "the disk has no workspace '" + name + "'",
                "moorage ls lists them");
  }
  if (matches.size() > 1) {
    std::string ids;
    for (const auto& match : matches) ids += (ids.empty() ? "" : ", ") + match.id;
    throw Error(Code::conflict, "several workspaces are called '" + name + "': " + ids,
                "use its id");
  }
  return matches.front();
}

std::shared_ptr<base::BytePipe> Rescue::begin_export(const std::string& name) {
  const auto found = find(name);
  auto pipe = std::make_shared<base::BytePipe>();
  exports_.submit([this, pipe, found] {
    try {
      write(found, *pipe);
      base::log(base::LogLevel::info, "rescue.exported", {{"id", found.id}});
      pipe->finish();
    } catch (const Error& error) {
      base::log(base::LogLevel::error, "rescue.not_exported",
                {{"id", found.id}, {"error", error.message()}});
      pipe->fail(error);
    } catch (const std::exception& error) {
      pipe->fail(Error(Code::internal, error.what()));
    }
  });
  return pipe;
}

void Rescue::write(const RescuedWorkspace& found, base::BytePipe& pipe) {
  if (!found.archive.empty()) {
    const base::Fd file = base::open_file(found.archive, O_RDONLY | O_NOFOLLOW);
    const auto read = read_file_in_pieces(file.get());
    for (auto piece = read(); !piece.empty(); piece = read()) pipe.write(piece);
    return;
  }
  // In memory, because the store's disk may be full or read-only.
  packs::WriterOptions options;
  options.unnamed_file = [] {
    return base::Fd(base::check(memfd_create("unnamed", MFD_CLOEXEC), "create a temporary file"));
  };
  bool taken = true;  // by the reader of the export
  packs::ArchiveWriter writer(options, [&](std::string_view bytes) {
    taken = false;
    pipe.write(bytes);
    taken = true;
  });
  Missing missing;
  const packs::PassOver pass_over = [&](const std::string& path, const Error& error) {
    if (!taken) throw error;
    missing.add(path, error);
  };
  if (found.about) writer.put("about.json", write_about_text(*found.about));
  write_journals(writer, options_.store + "/workspaces/" + found.id + "/journal", pass_over);
  for (const packs::LayerPart& part : parts_of(found, pass_over)) archive_layer_part(writer, part);
  if (missing.count() > 0) {
    base::log(base::LogLevel::warning, "rescue.missing",
              {{"id", found.id}, {"count", missing.count()}});
    writer.put("missing.txt", missing.text());
  }
  writer.finish();
}

std::vector<packs::LayerPart> Rescue::parts_of(const RescuedWorkspace& found,
                                               const packs::PassOver& pass_over) const {
  std::vector<packs::LayerPart> parts;
  for (size_t i = 0; i < found.layers.size(); ++i) {
    for (const std::string name : kLayerParts) {
      packs::LayerPart part;
      part.prefix = "layers/" + found.layers[i].str() + "/" + name;
      part.disk_first_id = options_.disk_first_id;
      part.pass_over = pass_over;
      part.uppers = uppers_of(options_.store, std::span(found.layers).subspan(i), name);
      if (part.uppers.empty()) continue;
      if (name == kLayerParts[0] && found.about) {
        const auto base = base_tree_of(options_.store, *found.about);
        part.base = base.tree;
        part.uppers.insert(part.uppers.end(), base.deltas.begin(), base.deltas.end());
      }
      const std::string home = options_.store + "/images/home";
      if (name == kLayerParts[1] && base::path_exists(home)) part.base = home;
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

}  // namespace moorage::workspace
