#include "cli/local/work_trees.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "base/size_text.h"
#include "cli/local/unkept.h"

namespace moorage::cli {
namespace {

constexpr uint64_t kMostIndex = uint64_t{2} << 30;
constexpr uint64_t kMostAttributes = 1 << 20;
constexpr std::string_view kSubmodule = "160000";
// Above every other attribute: nothing is converted.
constexpr const char* kAsOnDisk = "* -text -ident -filter !eol !working-tree-encoding\n";

bool is_file(std::string_view mode) { return mode.starts_with("100"); }

std::optional<uint64_t> size_on_disk(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return static_cast<uint64_t>(found.st_size);
}

bool is_there(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

std::string text_of(const std::string& path) {
  try {
    return base::read_file_if_exists(path, kMostAttributes).value_or("");
  } catch (const Error&) {
    return {};  // git does not read such a file either
  }
}

bool converts(std::string_view attributes) {
  return attributes.find("filter") != std::string_view::npos ||
         attributes.find("working-tree-encoding") != std::string_view::npos;
}

// Also without a program of the caller's.
bool changes_checkout(std::string_view attributes) {
  return attributes.find("eol") != std::string_view::npos ||
         attributes.find("ident") != std::string_view::npos ||
         attributes.find("working-tree-encoding") != std::string_view::npos;
}

bool is_attributes(std::string_view path) {
  return path.substr(path.rfind('/') + 1) == ".gitattributes";
}

// The path in git's words for a file that is not in the encoding of its attribute; empty: there are
// none. Git quotes nothing, so the path is the one that is there.
std::string unencodable(std::string_view error, const std::string& top) {
  const bool about_encoding = error.find("encode") != std::string_view::npos ||
                              error.find("encoding") != std::string_view::npos;
  const size_t start = error.find('\'');
  if (!about_encoding || start == std::string_view::npos) return {};
  for (size_t end = error.find('\'', start + 1); end != std::string_view::npos;
       end = error.find('\'', end + 1)) {
    std::string path(error.substr(start + 1, end - start - 1));
    if (!path.empty() && is_there(top + "/" + path)) return path;
  }
  return {};
}

// Git has two lines for each: "error: invalid path 'a/.GIT/b'", "error: unable to add '...' to
// index". The first alone says why.
std::string refused_name(std::string_view line) {
  constexpr std::string_view kInvalid = "error: invalid path '";
  constexpr std::string_view kUnable = "error: unable to add '";
  constexpr std::string_view kEnd = "' to index";
  if (line.starts_with(kInvalid) && line.ends_with("'"))
    return std::string(line.substr(kInvalid.size(), line.size() - kInvalid.size() - 1));
  if (line.starts_with(kUnable) && line.ends_with(kEnd)) {
    return std::string(line.substr(kUnable.size(), line.size() - kUnable.size() - kEnd.size()));
  }
  return {};
}

// Git has two lines for a file that it cannot read. The one before says why.
bool repeats_reason(std::string_view line) {
  return line.starts_with("error: unable to index file") || line == "fatal: adding files failed";
}

std::string first_of(const std::vector<std::string>& reasons) {
  constexpr size_t kMost = 10;
  std::string text;
  for (size_t n = 0; n < std::min(kMost, reasons.size()); ++n)
    text += (n == 0 ? "" : "\n") + reasons[n];
  if (reasons.size() > kMost) text += "\nand " + std::to_string(reasons.size() - kMost) + " more";
  return text;
}

// The caller's own file of patterns or attributes, wherever git would look for it.
std::string personal_file(const Checkout& checkout, const char* setting, const char* usual) {
  const GitCall call = checkout.is_plain() ? GitCall{checkout.top, {}, {}} : checkout.call();
  const std::string set =
      trimmed(try_git({"config", "--type=path", "--get", setting}, call).output);
  if (!set.empty()) return set;
  if (const char* home = std::getenv("XDG_CONFIG_HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/git/" + usual;
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.config/git/" + usual;
}

}  // namespace

WorkTrees::WorkTrees(const Checkout& checkout, std::string repository, std::string head)
    : checkout_(checkout),
      repository_(std::move(repository)),
      head_(std::move(head)),
      index_(repository_ + "/work-index"),
      promisor_(promisor_of(checkout)) {
  configure();
  seed_index();
}

GitCall WorkTrees::call(const std::string& input) const {
  return {checkout_.top,
          {{"GIT_DIR", repository_},
           {"GIT_WORK_TREE", checkout_.top},
           {"GIT_INDEX_FILE", index_},
           {"GIT_CONFIG_NOSYSTEM", "1"},
           {"GIT_CONFIG_GLOBAL", "/dev/null"},
           {"GIT_ATTR_NOSYSTEM", "1"},
           {"GIT_LITERAL_PATHSPECS", "1"}},
          input};
}

void WorkTrees::configure() {
  const auto set = [this](const char* name, const std::string& value) {
    run_git({"config", name, value}, call());
  };
  set("core.bare", "false");
  set("core.fileMode", "true");
  set("core.attributesFile", "/dev/null");
  set("core.excludesFile", personal_file(checkout_, "core.excludesFile", "ignore"));
  if (checkout_.is_plain()) return;
  base::make_directories(repository_ + "/info");
  base::write_file(repository_ + "/info/exclude", text_of(git_path(checkout_, "info/exclude")));
}

// A copy of the caller's index has the times of unchanged files. Its own time must stay, or files
// written in the same tick would count as unchanged.
void WorkTrees::seed_index() {
  struct stat found {};
  const std::string theirs = checkout_.is_plain() ? "" : git_path(checkout_, "index");
  const bool usable = !theirs.empty() && ::stat(theirs.c_str(), &found) == 0 &&
                      run_git_line({"rev-parse", "--shared-index-path"}, checkout_.call()).empty();
  if (!usable) {
    if (!head_.empty()) run_git({"read-tree", head_}, call());
    return;
  }
  base::write_file(index_, base::read_file(theirs, kMostIndex));
  const timespec times[2] = {found.st_atim, found.st_mtim};
  base::check(::utimensat(AT_FDCWD, index_.c_str(), times, 0), "set the time of the index");
}

// Files outside of a sparse checkout are not on disk: they stay as in HEAD.
void WorkTrees::clear_flags() {
  std::string flagged;
  size_t outside = 0;
  const std::string text = run_git({"ls-files", "-v", "-z"}, call());
  for (const std::string_view record : records(text)) {
    const char tag = record.front();
    const bool skipped = tag == 'S' || tag == 's';
    if (!skipped && (tag < 'a' || tag > 'z')) continue;
    const std::string path(record.substr(2));
    if (skipped && !is_there(checkout_.top + "/" + path)) {
      ++outside;
      continue;
    }
    flagged.append(path).push_back('\0');
  }
  if (outside > 0) {
    notes_.push_back(base::count_text(outside, "file") +
                     " outside of the sparse checkout: as in HEAD");
  }
  if (flagged.empty()) return;
  run_git({"update-index", "-z", "--no-skip-worktree", "--stdin"}, call(flagged));
  run_git({"update-index", "-z", "--no-assume-unchanged", "--stdin"}, call(flagged));
}

std::vector<WorkTrees::Entry> WorkTrees::entries() const {
  std::vector<Entry> entries;
  const std::string text = run_git({"ls-files", "--stage", "-z"}, call());
  for (const std::string_view record : records(text)) {
    const size_t tab = record.find('\t');
    const auto words = base::split(record.substr(0, tab), ' ');
    entries.push_back({std::string(words.at(0)), std::string(words.at(1)), std::string(words.at(2)),
                       std::string(record.substr(tab + 1))});
  }
  return entries;
}

std::vector<WorkTrees::Entry> WorkTrees::converted(const std::vector<Entry>& entries) const {
  const std::set<std::string> named =
      mentions_conversions(entries) ? by_attributes() : std::set<std::string>();
  std::vector<const Entry*> present;
  std::vector<uint64_t> sizes;
  std::string oids;
  for (const Entry& entry : entries) {
    if (!is_file(entry.mode) || entry.stage != "0") continue;
    const auto size = size_on_disk(checkout_.top + "/" + entry.path);
    if (!size) continue;
    present.push_back(&entry);
    sizes.push_back(*size);
    if (blob_sizes_.try_emplace(entry.oid).second) oids += entry.oid + "\n";
  }
  if (!oids.empty()) {
    const std::string text =
        run_git({"cat-file", "--batch-check=%(objectname) %(objectsize)"}, call(oids));
    for (std::string_view line : base::split(text, '\n')) {
      const std::string oid(base::take_until(line, ' '));
      blob_sizes_[oid] = line;
    }
  }
  std::vector<Entry> found;
  for (size_t n = 0; n < present.size(); ++n) {
    const Entry& entry = *present[n];
    if (blob_sizes_[entry.oid] != std::to_string(sizes[n]) || named.contains(entry.path))
      found.push_back(entry);
  }
  return found;
}

bool WorkTrees::mentions_conversions(const std::vector<Entry>& entries) const {
  if (converts(text_of("/etc/gitattributes"))) return true;
  if (converts(text_of(personal_file(checkout_, "core.attributesFile", "attributes")))) return true;
  if (!checkout_.is_plain() && converts(text_of(git_path(checkout_, "info/attributes"))))
    return true;
  return std::any_of(entries.begin(), entries.end(), [this](const Entry& entry) {
    return is_attributes(entry.path) && converts(text_of(checkout_.top + "/" + entry.path));
  });
}

std::set<std::string> WorkTrees::by_attributes() const {
  GitCall theirs = checkout_.is_plain() ? call() : checkout_.call();
  theirs.input = run_git({"ls-files", "-z"}, call());
  const std::string text =
      run_git({"check-attr", "-z", "--stdin", "filter", "working-tree-encoding"}, theirs);
  std::set<std::string> paths;
  const auto parts = records(text);
  for (size_t n = 0; n + 2 < parts.size(); n += 3) {
    if (parts[n + 2] != "unspecified" && parts[n + 2] != "unset")
      paths.insert(std::string(parts[n]));
  }
  return paths;
}

void WorkTrees::forget_times(const std::vector<Entry>& entries) const {
  std::string lines;
  for (const Entry& entry : entries) {
    lines += entry.mode + " " + entry.oid + " 0\t" + entry.path;
    lines.push_back('\0');
  }
  if (!lines.empty()) run_git({"update-index", "-z", "--index-info"}, call(lines));
}

// For a file that is not in the encoding of its attribute: git would refuse to add it.
bool WorkTrees::add_as_on_disk(const std::string& path) const {
  struct stat found {};
  if (::lstat((checkout_.top + "/" + path).c_str(), &found) != 0 || !S_ISREG(found.st_mode))
    return false;
  const std::string oid = run_git_line({"hash-object", "-w", "--no-filters", "--", path}, call());
  forget_times({{(found.st_mode & 0100) != 0 ? "100755" : "100644", oid, "0", path}});
  run_git({"update-index", "-z", "--assume-unchanged", "--stdin"}, call(path + '\0'));
  return true;
}

// Git leaves out a nested repository without a commit, with an error.
void WorkTrees::add_all() {
  base::ProcessResult added;
  std::set<std::string> odd;
  for (;;) {
    added = try_git({"add", "--all", "--ignore-errors"}, call());
    const std::string path = unencodable(added.error, checkout_.top);
    if (path.empty() || !odd.insert(path).second || !add_as_on_disk(path)) break;
  }
  std::vector<std::string> reasons;
  std::vector<std::string> refused;
  for (const std::string_view line : base::split(added.error, '\n')) {
    const std::string path = refused_name(line);
    if (!path.empty()) {
      if (refused.empty() || refused.back() != path) refused.push_back(path);
      continue;
    }
    // Git would go on without its files.
    const bool is_closed = line.starts_with("warning: could not open directory");
    const bool is_error = is_closed || line.starts_with("error: ") || line.starts_with("fatal: ");
    const bool is_nested = line.find("does not have a commit checked out") != std::string::npos;
    if (is_nested) {
      notes_.push_back("nested repositories, left out: " +
                       std::string(line.substr(std::string_view("error: ").size())));
    } else if (is_error && !repeats_reason(line)) {
      reasons.emplace_back(line);
    }
  }
  if (!refused.empty()) {
    notes_.push_back("git refuses these names, left out: " + some_of(refused) +
                     "; moorage cp brings them");
  }
  if (reasons.empty()) return;
  throw Error(Code::io, "git cannot take all files of " + checkout_.top + ": " + first_of(reasons),
              "make them readable, or ignore them in .gitignore");
}

// Git takes a nested repository for a submodule, of which it has no files.
void WorkTrees::drop_nested(const std::vector<Entry>& entries) {
  std::vector<Entry> submodules;
  std::vector<std::string> nested;
  std::set<std::string> known;
  const auto is_link = [](const Entry& entry) { return entry.mode == kSubmodule; };
  if (std::none_of(entries.begin(), entries.end(), is_link)) return;
  if (!head_.empty()) {
    const std::string text = run_git({"ls-tree", "-r", "-z", head_}, call());
    for (const std::string_view record : records(text)) {
      if (record.starts_with(kSubmodule))
        known.insert(std::string(record.substr(record.find('\t') + 1)));
    }
  }
  const std::string declared = text_of(checkout_.top + "/.gitmodules");
  for (const std::string_view line : base::split(declared, '\n')) {
    const size_t name = line.find_first_not_of(" \t");
    const size_t value = line.find_first_not_of(" \t", line.find('=') + 1);
    if (name != std::string_view::npos && line.substr(name).starts_with("path") &&
        value != std::string_view::npos)
      known.insert(std::string(line.substr(value)));
  }
  std::string gone;
  for (const Entry& entry : entries) {
    if (!is_link(entry)) continue;
    if (known.contains(entry.path)) {
      submodules.push_back(entry);
      continue;
    }
    nested.push_back(entry.path);
    gone.append(entry.path).push_back('\0');
  }
  note_submodules(submodules);
  if (nested.empty()) return;
  notes_.push_back("nested repositories, left out: " + some_of(nested) +
                   "; moorage cp brings them");
  run_git({"update-index", "-z", "--force-remove", "--stdin"}, call(gone));
}

void WorkTrees::note_submodules(const std::vector<Entry>& links) {
  std::vector<std::string> filled;
  std::vector<std::string> changed;
  for (const Entry& link : links) {
    const std::string directory = checkout_.top + "/" + link.path;
    if (!is_there(directory + "/.git")) continue;
    filled.push_back(link.path);
    const auto status = try_git({"status", "--porcelain"}, {directory, {}, {}});
    if (!status.ok() || !status.output.empty()) changed.push_back(link.path);
  }
  if (!filled.empty()) {
    notes_.push_back("files of submodules stay here: " + some_of(filled) +
                     " (an empty directory inside; moorage cp brings them)");
  }
  if (!changed.empty())
    notes_.push_back("changes inside submodules stay here: " + some_of(changed));
}

void WorkTrees::note_unkept() {
  std::vector<std::string> files;
  for (Entry& entry : entries()) files.push_back(std::move(entry.path));
  for (std::string& note : unkept(checkout_.top, files, call())) notes_.push_back(std::move(note));
}

std::string WorkTrees::write_tree() const {
  std::vector<std::string> words{"write-tree"};
  if (!promisor_.empty()) words.emplace_back("--missing-ok");
  return run_git_line(words, call());
}

std::string WorkTrees::write_stored() {
  clear_flags();
  forget_times(converted(entries()));
  add_all();
  drop_nested(entries());
  note_unkept();
  return write_tree();
}

std::string WorkTrees::write_raw() {
  const std::vector<Entry> all = entries();
  may_convert_ = std::any_of(all.begin(), all.end(), [this](const Entry& entry) {
    return is_attributes(entry.path) && changes_checkout(text_of(checkout_.top + "/" + entry.path));
  });
  const std::vector<Entry> other = converted(all);
  if (other.empty()) return write_tree();
  base::make_directories(repository_ + "/info");
  base::write_file(repository_ + "/info/attributes", kAsOnDisk);
  forget_times(other);
  std::string paths;
  for (const Entry& entry : other) paths.append(entry.path).push_back('\0');
  run_git({"update-index", "-z", "--stdin"}, call(paths));
  return write_tree();
}

}  // namespace moorage::cli
