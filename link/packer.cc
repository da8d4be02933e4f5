#include "link/packer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/os/files.h"
#include "link/volume/kept_tree.h"
#include "packs/merged/finder.h"
#include "packs/merged/tree_listing.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxJobBytes = 1 << 20;  // names of git's packs
constexpr int kPipeBytes = 1 << 20;
constexpr const char* kTree = "/workspace";
constexpr const char* kHome = "/home/user";

std::string job_text(const PackJob& job) {
  json::object object{
      {"kind", static_cast<int>(job.kind)}, {"path", job.path}, {"after", job.after}};
  object["keep"] = job.keep;
  object["present"] = json::value_from(job.present);
  object["paths"] = json::value_from(job.paths);
  object["layers"] = base::link_layers_text(job.layers);
  return json::serialize(object);
}

PackJob parse_job(const std::string& text) {
  json::parse_options any_bytes;  // of file names
  any_bytes.allow_invalid_utf8 = true;
  const json::object object = json::parse(text, {}, any_bytes).as_object();
  PackJob job;
  job.kind = static_cast<PackJob::Kind>(object.at("kind").as_int64());
  job.path = json::value_to<std::string>(object.at("path"));
  job.after = json::value_to<std::string>(object.at("after"));
  job.keep = json::value_to<std::string>(object.at("keep"));
  job.present = json::value_to<std::vector<std::string>>(object.at("present"));
  job.paths = json::value_to<std::vector<std::string>>(object.at("paths"));
  job.layers = base::parse_link_layers(json::value_to<std::string>(object.at("layers")));
  return job;
}

// What a job reads; the descriptors live as long as this.
class Sources {
 public:
  explicit Sources(const base::LinkConfig& config) : owners_{.first_id = config.first_id} {}

  void add(const std::string& prefix, const std::string& merged,
           const std::vector<std::string>& uppers) {
    packs::MergedRoot root{prefix, open(merged), {}, owners_};
    for (const std::string& upper : uppers) root.uppers.push_back(open(upper));
    options.roots.push_back(std::move(root));
  }

  packs::FinderOptions options;

 private:
  int open(const std::string& path) {
    held_.push_back(base::open_directory(path));
    return held_.back().get();
  }
  packs::InsideOwners owners_;
  std::vector<base::Fd> held_;
};

// Newest first, without those that are empty.
std::vector<std::string> uppers_of(const std::vector<base::LinkLayer>& layers,
                                   std::string base::LinkLayer::*part) {
  std::vector<std::string> uppers;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (!((*layer).*part).empty()) uppers.push_back((*layer).*part);
  }
  return uppers;
}

// "/workspace/a" as "tree/a".
std::string inside_pack(const std::string& path) {
  for (const auto& [mount, prefix] : {std::pair{kTree, "tree"}, {kHome, "home"}}) {
    const size_t size = std::string_view(mount).size();
    if (path == mount) return prefix;
    if (path.starts_with(mount) && path[size] == '/') return prefix + path.substr(size);
  }
  throw Error(Code::invalid_argument, "neither in /workspace nor in /home/user: " + path);
}

void add_sources(const base::LinkConfig& config, const PackJob& job, Sources& sources) {
  if (job.kind == PackJob::Kind::tree) return sources.add("tree", job.path, {});
  if (job.kind == PackJob::Kind::paths) {
    sources.add("tree", kTree, {});
    return sources.add("home", kHome, {});
  }
  // A tree without layers is exactly the base tree.
  const auto trees = uppers_of(job.layers, &base::LinkLayer::tree);
  if (!trees.empty() || config.base.key.empty()) sources.add("tree", kTree, trees);
  sources.add("home", kHome, uppers_of(job.layers, &base::LinkLayer::home));
}

// The digest is that of the bytes which leave this process, whatever becomes of them there.
class KeptPack {
 public:
  KeptPack(const base::LinkConfig& config, const PackJob& job) : config_(config), name_(job.keep) {
    const bool whole = job.kind == PackJob::Kind::tree && job.path == config.base.path &&
                       job.after.empty() && job.present.empty();
    if (!name_.empty() && !whole)
      throw Error(Code::invalid_argument, "only a whole base tree is kept in a volume");
  }
  void add(std::string_view bytes) {
    if (name_.empty()) return;
    digest_.add(bytes);
    bytes_ += bytes.size();
  }
  // A push does not fail because of this.
  void note() const {
    if (name_.empty()) return;
    try {
      note_kept_tree(config_, {name_, base::to_hex(digest_.raw()), bytes_});
    } catch (const Error& error) {
      const std::string line =
          "moorage-link: a base tree is sent again to the next machine: " + error.message() + "\n";
      [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
    }
  }

 private:
  const base::LinkConfig& config_;
  const std::string name_;
  base::Sha256 digest_;
  uint64_t bytes_ = 0;
};

void make_pack(const base::LinkConfig& config, const PackJob& job, int out) {
  if (job.kind == PackJob::Kind::listing)
    return base::write_all(out, packs::listing_text(packs::list_tree(job.path)));
  KeptPack kept(config, job);
  Sources sources(config);
  add_sources(config, job, sources);
  sources.options.passes = 1;
  sources.options.after = job.after;
  std::set<std::string, std::less<>> present;
  for (const std::string& name : job.present) present.insert("tree/" + name);
  if (!present.empty()) {
    sources.options.wanted = [&present](std::string_view path) { return !present.contains(path); };
  }
  packs::PackCompression compression;
  // A tree may be large: compress beside reading it.
  if (job.kind == PackJob::Kind::tree) compression.threads = 2;
  const auto write = [out, &kept](std::string_view bytes) {
    base::write_all(out, bytes);
    kept.add(bytes);
  };
  packs::PackWriter pack(write, compression);
  packs::SentList sent;
  packs::MergedFinder finder(sources.options, sent);
  const auto to_pack = [&pack]() -> packs::PackWriter& { return pack; };
  if (job.kind != PackJob::Kind::paths) {
    finder.find(to_pack);
  } else {
    std::vector<std::string> paths;
    for (const std::string& path : job.paths) paths.push_back(inside_pack(path));
    finder.find_paths(paths, to_pack);
  }
  pack.finish();
  kept.note();
}

std::string result_text(const base::LinkConfig& config, const std::string& job, int out) {
  try {
    make_pack(config, parse_job(job), out);
    return "{}";
  } catch (const Error& error) {
    return json::serialize(json::object{{"code", base::code_name(error.code())},
                                        {"message", error.message()},
                                        {"hint", error.hint()}});
  } catch (const std::exception& error) {
    return json::serialize(json::object{
        {"code", base::code_name(Code::internal)}, {"message", error.what()}, {"hint", ""}});
  }
}

[[noreturn]] void serve(const base::LinkConfig& config, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  for (;;) {
    base::Received received;
    try {
      received = base::receive_with_fds(socket, kMaxJobBytes, 2);
    } catch (const Error&) {
      _exit(1);
    }
    if (received.bytes.empty() || received.fds.size() != 1) _exit(0);
    const std::string result = result_text(config, received.bytes, received.fds[0].get());
    // Before the pipe ends: whoever sees its end can ask for the reason.
    base::send_with_fds(socket, result, {});
  }
}

}  // namespace

Packer::Packer(const base::LinkConfig& config) {
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()),
              "create a socket");
  socket_.reset(ends[0]);
  const base::Fd theirs(ends[1]);
  constexpr int kBufferBytes = static_cast<int>(kMaxJobBytes);
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &kBufferBytes, sizeof kBufferBytes);
  pid_ = base::check(fork(), "create a process");
  if (pid_ != 0) return;
  socket_.reset();
  try {
    serve(config, theirs.get());
  } catch (...) {
    _exit(1);
  }
}

Packer::~Packer() {
  socket_.reset();
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

base::Fd Packer::begin(const PackJob& job) {
  failure();  // of earlier jobs
  base::Pipe pipe = base::make_pipe();
  fcntl(pipe.write_end.get(), F_SETPIPE_SZ, kPipeBytes);
  base::check(fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
  const int fd = pipe.write_end.get();
  base::send_with_fds(socket_.get(), job_text(job), {&fd, 1});
  ++begun_;
  return std::move(pipe.read_end);
}

std::optional<Error> Packer::failure() {
  while (ended_ < begun_ && base::wait_readable(socket_.get(), 0)) {
    const base::Received received = base::receive_with_fds(socket_.get(), 64 << 10, 1);
    if (received.bytes.empty()) {
      ended_ = begun_;
      failure_ = Error(Code::internal, "the process that makes packs has ended");
      break;
    }
    ++ended_;
    failure_.reset();
    const json::object result = json::parse(received.bytes).as_object();
    if (!result.contains("code")) continue;
    const auto text = [&result](const char* name) {
      return json::value_to<std::string>(result.at(name));
    };
    failure_ = Error(base::code_from_name(text("code")), text("message"), text("hint"));
  }
  return ended_ == begun_ ? failure_ : std::nullopt;
}

}  // namespace moorage::link
