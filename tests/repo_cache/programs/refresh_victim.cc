// refresh_victim ROOT REPO URL FILE_ROOT: one refresh, to be killed by a test or at a crash point.
#include <cstdio>

#include "base/error.h"
#include "repo_cache/repo_cache.h"

int main(int argc, char** argv) {
  using namespace moorage;
  if (argc != 5) return 2;
  try {
    repo_cache::RepoCacheOptions options;
    options.root = argv[1];
    options.url_policy.file_roots = {argv[4]};
    repo_cache::RepoCache cache(options);
    cache.refresh(argv[2], repo_cache::parse_url(argv[3], options.url_policy),
                  std::chrono::minutes(2));
    return 0;
  } catch (const base::Error& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
