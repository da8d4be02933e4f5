// Repository URLs: an accepted URL is safe for git, and parses to itself.
#include "fuzz.h"
#include "repo_cache/url.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const repo_cache::UrlPolicy policy{{"/usr/share/git-core"}};
  repo_cache::RepoUrl url;
  if (fuzz::refused([&] { url = repo_cache::parse_url(text, policy); })) return 0;
  fuzz::require(!url.fetch.empty() && url.fetch.front() != '-',
                "git does not take it for an option");
  // Git takes a helper's name up to "::"; such a name contains no slash.
  const size_t helper = url.fetch.find("::");
  fuzz::require(helper == std::string::npos || url.fetch.find('/') < helper, "no remote helper");
  for (const char c : url.fetch + url.key) {
    fuzz::require(static_cast<unsigned char>(c) >= 0x20, "no control characters");
  }
  for (const char c : url.display) fuzz::require(c >= 0x20 && c < 0x7f, "shown in printable ASCII");
  const repo_cache::RepoUrl again = repo_cache::parse_url(url.fetch, policy);
  fuzz::require(again.key == url.key && again.fetch == url.fetch, "it means the same again");
  return 0;
}
