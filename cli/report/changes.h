// The parts of a report about files: changes, commits, and repositories that a patch cannot
// contain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report/writer.h"

namespace moorage::cli {

class Context;

struct ChangedFile {
  std::string path;
  std::string change;
  int64_t added = 0;
  int64_t removed = 0;
  bool binary = false;
};

struct ChangedFiles {
  std::vector<ChangedFile> rows;  // at most the requested number
  int64_t files = 0;              // all
  int64_t added = 0;
  int64_t removed = 0;
};

ChangedFiles list_changes(Context& context, const std::string& workspace, size_t most_rows);
// has_work: uncommitted files of a checkout belong to the base.
void write_changes(ReportWriter& writer, const ChangedFiles& changes, const std::string& workspace,
                   bool has_work);

// Repositories inside the repository: their number and a few names.
struct NestedRepositories {
  std::vector<std::string> names;
  uint64_t count = 0;
  bool truncated = false;  // too many files to check all
};
NestedRepositories list_nested(Context& context, const std::string& workspace);

// A line of git's log of HEAD.
struct HeadMove {
  std::string commit;
  std::string who;
  std::string when;  // "2026-11-23 18:35:03", UTC; empty: unknown
  std::string what;  // "commit: split the auth module"
};
// The last entries, the oldest first. Skips invalid lines: anything in the workspace may have
// written them.
std::vector<HeadMove> read_head_log(std::string_view log);
void write_commits(Context& context, ReportWriter& writer, const std::string& workspace,
                   size_t most_rows);

}  // namespace moorage::cli
