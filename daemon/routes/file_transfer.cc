#include "daemon/routes/file_transfer.h"

#include <algorithm>

#include "base/digest.h"
#include "base/log.h"
#include "daemon/http/preconditions.h"
#include "daemon/json/json_views.h"
#include "workspace/access/keyed_request.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;

class ByteCount {
 public:
  explicit ByteCount(UploadLimits limits) : limits_(std::move(limits)) {}
  void add(size_t bytes) {
    seen_ += bytes;
    if (seen_ <= limits_.max_bytes) return limits_.require_room(bytes);
    throw Error(Code::invalid_argument,
                "the body is larger than " + std::to_string(limits_.max_bytes) + " bytes",
                "the limit is the setting api.max_body_bytes");
  }

 private:
  const UploadLimits limits_;
  uint64_t seen_ = 0;
};

class FileSource : public BodySource {
 public:
  FileSource(base::Fd file, std::shared_ptr<const void> keep, uint64_t size)
      : keep_(std::move(keep)), file_(std::move(file)), size_(size) {}
  // The file may change while it is read: growth is cut off; a shrunk file ends short, and the
  // reply's writer notices that the length differs from the head.
  Step read() override {
    const size_t wanted = std::min<uint64_t>(kPieceBytes, size_ - offset_);
    Step step{base::read_at(file_.get(), wanted, offset_), Next::more, {}};
    offset_ += step.bytes.size();
    if (offset_ == size_ || step.bytes.size() < wanted) step.next = Next::end;
    return step;
  }

 private:
  std::shared_ptr<const void> keep_;
  base::Fd file_;
  uint64_t size_;
  uint64_t offset_ = 0;
};

class FillSink : public BodySink {
 public:
  FillSink(base::Fd file, UploadLimits limits, std::function<Reply(base::Fd)> done)
      : file_(std::move(file)), count_(std::move(limits)), done_(std::move(done)) {}
  Taken write(std::string_view piece) override {
    count_.add(piece.size());
    base::write_all(file_.get(), piece);
    return Taken::all;
  }
  Reply finish() override { return done_(std::move(file_)); }

 private:
  base::Fd file_;
  ByteCount count_;
  std::function<Reply(base::Fd)> done_;
};

class WorkspaceFileSink : public BodySink {
 public:
  WorkspaceFileSink(workspace::Workspaces& workspaces, state_db::Store& store,
                    const Request& request, const std::string& path, uint32_t mode,
                    UploadLimits limits)
      : workspaces_(workspaces),
        store_(store),
        caller_(request.caller),
        lease_(workspaces.files(caller_, request.parameter(0), workspace::Right::write)),
        path_(path),
        conditions_(request),
        writer_(lease_.files.begin_write(path_, mode)),
        count_(std::move(limits)) {}
  Taken write(std::string_view piece) override {
    count_.add(piece.size());
    writer_.write(piece);
    hash_.add(piece);
    return Taken::all;
  }
  Reply finish() override {
    writer_.sync();
    const std::string hash = base::to_hex(hash_.raw());
    const auto guard = workspaces_.change_files(caller_, lease_.row);
    if (!workspace::has_begun(caller_) || lease_.files.content_hash(path_) != hash) {
      if (auto refused = conditions_.unmet(lease_.files, path_)) return std::move(*refused);
      join_to_tree(store_, caller_);
      writer_.commit();
    }
    Reply reply = Reply::json(file_json(path_, lease_.files.stat(path_), hash));
    reply.headers.emplace_back("ETag", entity_tag(hash));
    return reply;
  }

 private:
  workspace::Workspaces& workspaces_;
  state_db::Store& store_;
  const workspace::Caller caller_;
  workspace::FilesLease lease_;
  std::string path_;
  const Preconditions conditions_;
  layers::TreeFiles::Writer writer_;
  base::Sha256 hash_;
  ByteCount count_;
};

}  // namespace

std::unique_ptr<BodySource> read_out(base::Fd file, std::shared_ptr<const void> keep,
                                     uint64_t size) {
  return std::make_unique<FileSource>(std::move(file), std::move(keep), size);
}

std::unique_ptr<BodySink> fill_file(base::Fd file, UploadLimits limits,
                                    std::function<Reply(base::Fd)> done) {
  return std::make_unique<FillSink>(std::move(file), std::move(limits), std::move(done));
}

std::unique_ptr<BodySink> write_workspace_file(workspace::Workspaces& workspaces,
                                               state_db::Store& store, const Request& request,
                                               const std::string& path, uint32_t mode,
                                               UploadLimits limits) {
  return std::make_unique<WorkspaceFileSink>(workspaces, store, request, path, mode,
                                             std::move(limits));
}

void join_to_tree(state_db::Store& store, const workspace::Caller& caller) {
  try {
    workspace::join_key(store, caller, "tree");
  } catch (const Error& error) {
    if (error.code() != Code::resource_exhausted) throw;
    base::log(base::LogLevel::warning, "http.key_not_joined", {{"error", error.message()}});
  }
}

}  // namespace moorage::daemon
