# ctest reads this when it runs: ./check --all sets MOORAGE_TEST_LONG, and some suites do much more then. Else a test that
# hangs is to be known soon.
if(DEFINED ENV{MOORAGE_TEST_LONG})
  set_tests_properties(e2e_deep_chains e2e_last_output e2e_last_output_docker e2e_snapshots e2e_snapshots_docker faults_power threats_shares
    threats_hostile_tree test_warden test_storage PROPERTIES TIMEOUT 7200)
endif()
