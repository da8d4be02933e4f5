#include "repo_cache/git_command.h"

#include <signal.h>

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"

namespace moorage::repo_cache {

namespace {

constexpr size_t kMaxOutputBytes = 128 << 20;

// Repeats important defaults of git, in case a build has others.
std::vector<std::string> fixed_settings() {
  return {
      "core.hooksPath=/dev/null",
      "core.fsmonitor=false",
      "core.fsync=all",             // the default may lose refs and loose objects in a power cut
      "core.bigFileThreshold=64m",  // larger blobs are streamed, not held in memory
      "core.packedGitLimit=2g",
      "credential.helper=",
      "fetch.unpackLimit=1",  // always a pack: three syncs per fetch instead of one per object
      "fetch.recurseSubmodules=false",
      "gc.auto=0",
      "maintenance.auto=false",
      "http.followRedirects=initial",
      "http.lowSpeedLimit=1000",
      "http.lowSpeedTime=60",
      "protocol.version=2",
      "protocol.allow=never",
      "transfer.fsckObjects=true",
      // Errors of old tools, common in old histories and harmless; refuse all others.
      "fetch.fsck.badTimezone=ignore",
      "fetch.fsck.missingSpaceBeforeDate=ignore",
      "fetch.fsck.zeroPaddedFilemode=ignore",
  };
}

// Git prints progress as "Receiving objects:  45% (9/20), 1.2 MiB\r".
class ProgressReader {
 public:
  // Throws resource_exhausted when git announces more objects than that.
  ProgressReader(const ProgressFunction& report, uint64_t max_objects)
      : report_(report), max_objects_(max_objects) {}

  void feed(std::string_view bytes) {
    for (char c : bytes) {
      if (c != '\r' && c != '\n') {
        if (line_.size() < 400) line_ += c;
        continue;
      }
      report_line();
      line_.clear();
    }
  }

 private:
  // "Receiving objects:   0% (9/20000)": the second number is in the head of the pack.
  void check_objects() const {
    if (!line_.starts_with("Receiving objects:")) return;
    const size_t slash = line_.find('/');
    if (slash == std::string::npos) return;
    const uint64_t objects = std::strtoull(line_.c_str() + slash + 1, nullptr, 10);
    if (objects > max_objects_)
      throw Error(Code::resource_exhausted,
                  "upstream sends " + std::to_string(objects) + " objects at once",
                  "the limit for one fetch is the setting repo.max_objects");
  }

  void report_line() {
    check_objects();
    if (!report_) return;
    const size_t sign = line_.find('%');
    if (sign == std::string::npos || sign < 1) return;
    size_t first = sign;
    while (first > 0 && line_[first - 1] >= '0' && line_[first - 1] <= '9') --first;
    if (first == sign || sign - first > 3) return;
    const int percent = std::stoi(line_.substr(first, sign - first));
    if (percent > 100) return;
    report_(Progress{"fetch", percent, base::escape_for_message(line_)});
  }

  const ProgressFunction& report_;
  const uint64_t max_objects_;
  std::string line_;
};

std::string_view line_at(std::string_view text, size_t begin) {
  // ssh ends its lines with \r\n.
  return text.substr(begin, std::min(text.find_first_of("\r\n", begin), text.size()) - begin);
}

std::string_view line_before(std::string_view text, size_t at) {
  text = text.substr(0, text.find_last_not_of("\r\n", at - 1) + 1);
  return text.substr(text.find_last_of("\r\n") + 1);
}

// Extracts the reason: prefers "fatal: ..." to "error: ..." to the last line. After a line that
// ends in a colon, the reason is on the next one; a failure of ssh is on the line before.
std::string reason_of(const std::string& text) {
  constexpr size_t kLongest = 300;
  for (std::string_view mark : {"fatal: ", "error: ", "ERROR: "}) {
    const size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    std::string reason(line_at(text, at + mark.size()));
    const size_t next = at + mark.size() + reason.size() + 1;
    if (reason.ends_with(':') && next < text.size()) reason.append(" ").append(line_at(text, next));
    if (reason.starts_with("Could not read from remote") && at > 0) reason = line_before(text, at);
    return base::escape_for_message(reason.substr(0, kLongest));
  }
  const size_t end = text.find_last_not_of("\r\n");
  if (end == std::string::npos) return "no message";
  const size_t begin = text.find_last_of("\r\n", end);
  const size_t first = begin == std::string::npos ? 0 : begin + 1;
  return base::escape_for_message(text.substr(first, std::min(end + 1 - first, kLongest)));
}

struct Explanation {
  Code code;
  std::string_view hint;
  std::string_view needles;  // any of them in git's standard error; separated by "|"
};

// The order matters: git adds general errors to precise ones.
constexpr Explanation kExplanations[] = {
    {Code::resource_exhausted, "the repository is larger than the limit for one fetch",
     "died of signal 25|File too large"},
    {Code::resource_exhausted, "the disk of the store is full: free space, then try again",
     "No space left on device|Disk quota exceeded"},
    {Code::resource_exhausted,
     "git exceeded its memory limit; for a repository that you trust, raise "
     "repo.max_git_memory_bytes",
     "ut of memory|Cannot allocate memory|mmap failed|unable to create thread"},
    {Code::unsupported, "repositories with SHA-256 object ids are not supported yet",
     "mismatched algorithms|unsupported hash|unknown object format"},
    {Code::invalid_argument, "upstream has objects that git's own checks refuse", "fsck error"},
    // index-pack was killed before it printed anything: by the file size limit, or for its memory.
    {Code::resource_exhausted, "the repository is larger than the limit for one fetch",
     "invalid index-pack output"},
    {Code::permission_denied,
     "git refuses a directory of another user; as its owner, create the workspace from the "
     "local checkout (--from DIR)",
     "dubious ownership"},
    {Code::permission_denied,
     "add the host's key to ~/.ssh/known_hosts with ssh-keyscan, after checking it; root's "
     "for repositories without a credential",
     "Host key verification failed"},
    {Code::permission_denied, kPrivateHint,
     "Authentication failed|could not read Username|could not read Password|"
     "terminal prompts disabled|Permission denied (|returned error: 401|"
     "returned error: 403|Invalid username or password"},
    {Code::permission_denied,
     "a credential goes to no other place; use the URL that upstream redirects to",
     "returned error: 301|returned error: 302|returned error: 303|returned error: 307|"
     "returned error: 308"},
    {Code::unavailable, "repo.ca_file is unreadable or not a PEM file", "CA cert|ca cert|CAfile"},
    {Code::unavailable,
     "the server's certificate is not trusted here; append its authority's to a copy of "
     "/etc/ssl/certs/ca-certificates.crt and name that in repo.ca_file",
     "certificate verif|self-signed certificate|unable to get local issuer"},
    {Code::unavailable, "check the network and the host name",
     "Could not resolve|unable to look up|unable to connect|Failed to connect|"
     "Couldn't connect|Connection refused|Connection timed out|Connection reset|"
     "Connection closed|No route to host|Network is unreachable|Operation timed out|"
     "Operation too slow|early EOF|unexpected disconnect|the remote end hung up|"
     "returned error: 5|Temporary failure in name resolution|SSL_|SSL |certificate|"
     "Proxy CONNECT"},
    {Code::not_found, "check the URL",
     "does not appear to be a git repository|epository not found|"
     "repository not exported|returned error: 404|not found|no such repository|"
     "No such file or directory"},
    {Code::corrupted, "",
     "bad object|missing blob|missing tree|missing commit|unable to read|is corrupt|"
     "object corrupt|packfile|invalid sha1 pointer|broken link|"
     "did not send all necessary objects|bad tree|bad ref|is empty"},
    {Code::unavailable, "check the URL, the network and the access rights",
     "Could not read from remote repository"},
};

bool contains_any(std::string_view text, std::string_view needles) {
  while (!needles.empty()) {
    if (text.find(base::take_until(needles, '|')) != std::string_view::npos) return true;
  }
  return false;
}

std::pair<Code, std::string> explain(const base::ProcessResult& result) {
  if (result.signal == SIGXFSZ) {
    return {Code::resource_exhausted, "the repository is larger than the limit for one fetch"};
  }
  if (result.signal == SIGPIPE) return {Code::unavailable, "upstream closed the connection"};
  for (const Explanation& row : kExplanations) {
    if (contains_any(result.error, row.needles)) return {row.code, std::string(row.hint)};
  }
  return {Code::io, {}};
}

}  // namespace

Duration Deadline::left() const {
  const auto left = std::chrono::duration_cast<Duration>(end_ - std::chrono::steady_clock::now());
  if (left.count() <= 0) throw Error(Code::deadline_exceeded, "git did not finish in time");
  return left;
}

base::ProcessResult GitCommand::try_run(const std::vector<std::string>& arguments,
                                        const Deadline& deadline, const GitRun& run) const {
  std::vector<std::string> argv = {options_.git};
  if (!run.directory.empty()) argv.emplace_back("--git-dir=" + run.directory);
  for (const std::string& setting : fixed_settings()) {
    argv.insert(argv.end(), {"-c", setting});
  }
  if (!run.protocol.empty()) {
    argv.insert(argv.end(), {"-c", "protocol." + run.protocol + ".allow=always"});
  }
  if (run.access != nullptr) {
    for (const std::string& setting : run.access->settings)
      argv.insert(argv.end(), {"-c", setting});
  }
  argv.insert(argv.end(), arguments.begin(), arguments.end());

  const bool has_ssh = run.access != nullptr && !run.access->ssh_command.empty();
  base::ProcessOptions options;
  options.environment = options_.environment;
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
           {"HOME", "/nonexistent"},
           {"LC_ALL", "C"},
           {"GIT_CONFIG_NOSYSTEM", "1"},
           {"GIT_CONFIG_GLOBAL", "/dev/null"},
           {"GIT_ATTR_NOSYSTEM", "1"},
           {"GIT_TERMINAL_PROMPT", "0"},
           {"GIT_ASKPASS", "/bin/false"},
           {"SSH_ASKPASS", "/bin/false"},
           {"GIT_SSH_COMMAND", has_ssh ? run.access->ssh_command : options_.ssh_command},
           {"GIT_SSH_VARIANT", "ssh"}}) {
    options.environment[name] = value;
  }
  options.input = run.input;
  options.input_fd = run.input_fd;
  options.output_fd = run.output_fd;
  options.inherit_fds = run.inherit_fds;
  if (run.access != nullptr) {
    for (const base::Fd& file : run.access->files) options.inherit_fds.push_back(file.get());
  }
  options.deadline = deadline.left();
  options.max_output_bytes = kMaxOutputBytes;
  options.max_memory_bytes = options_.max_git_address_bytes;
  options.max_data_bytes = options_.max_git_memory_bytes;
  options.max_file_bytes = run.max_file_bytes;
  ProgressReader reader(run.progress, options_.max_objects);
  if (run.progress || run.from_upstream)
    options.on_error_output = [&reader](std::string_view bytes) { reader.feed(bytes); };
  return base::run_process(argv, options);
}

base::ProcessResult GitCommand::try_fetch_file(const std::string& from,
                                               const std::vector<std::string>& refs,
                                               const Deadline& deadline, GitRun run) const {
  std::vector<std::string> arguments = {
      "fetch", "--no-tags", "--no-auto-gc", "--no-write-fetch-head", "--", from};
  arguments.insert(arguments.end(), refs.begin(), refs.end());
  run.protocol = "file";
  return try_run(arguments, deadline, run);
}

std::string GitCommand::run(const std::vector<std::string>& arguments, const Deadline& deadline,
                            const GitRun& run, const std::string& what) const {
  base::ProcessResult result = try_run(arguments, deadline, run);
  if (!result.ok()) throw git_failure(result, what);
  return std::move(result.output);
}

Error git_failure(const base::ProcessResult& result, const std::string& what) {
  const auto [code, hint] = explain(result);
  std::string message = "cannot " + what + ": " + reason_of(result.error);
  if (result.signal != 0) message += " (git ended by signal " + std::to_string(result.signal) + ")";
  return Error(code, message, hint);
}

}  // namespace moorage::repo_cache
