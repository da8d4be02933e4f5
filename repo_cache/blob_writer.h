// Writes single files of a commit into a directory, converted as in a checkout. One per thread.
#pragma once

#include <atomic>
#include <string>

#include "repo_cache/base_tree.h"
#include "repo_cache/formats/attributes.h"
#include "repo_cache/formats/index_file.h"
#include "repo_cache/git_command.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_listing.h"

namespace moorage::repo_cache {

// Reads every .gitattributes of the listing. `steps` limits matching for the whole commit.
Attributes read_attributes(git_repository* repository, const TreeListing& listing,
                           uint64_t most_steps);

class BlobWriter {
 public:
  // mtime_s: of every file written. attributes is shared and outlives this.
  BlobWriter(const RepoCacheOptions& options, const std::string& git_directory,
             const Attributes& attributes, uint32_t mtime_s);

  // Creates `name` (in directories that we made) below directory_fd; it must not exist. A submodule
  // becomes an empty directory.
  FileStat write(int directory_fd, const char* name, const ListedFile& file);
  void set_time(uint32_t mtime_s) { mtime_s_ = mtime_s; }  // of the next ones
  const BaseTreeInfo& counts() const { return counts_; }   // files, bytes, submodules, lfs, filters

 private:
  uint64_t write_file(int directory_fd, const char* name, const ListedFile& file);
  uint64_t write_link(int directory_fd, const char* name, const ListedFile& file);
  size_t size_of(const ListedFile& file);
  GitOdbObject read(const ListedFile& file);
  uint64_t write_small(int fd, const ListedFile& file, const Conversion& conversion);
  uint64_t write_large(int fd, const ListedFile& file, size_t size, const Conversion& conversion);

  const RepoCacheOptions& options_;
  const std::string git_directory_;
  GitRepository repository_;
  GitOdb odb_;
  const Attributes& attributes_;
  uint32_t mtime_s_;
  BaseTreeInfo counts_;
};

// Time for the files of a commit: the commit's own, limited to between 1980 and 10 s ago, so that
// an index written now is newer.
uint32_t file_time_of(git_repository* repository, const std::string& commit);

}  // namespace moorage::repo_cache
